package retry

import (
	"errors"
	"strconv"
	"time"
)

// Asked is a failure after which the server has asked to be left alone for a while, as with the
// header Retry-After of HTTP (RFC 9110, section 10.2.3).
type Asked struct {
	After time.Duration
	Err   error
}

func (a Asked) Error() string { return a.Err.Error() }

// Unwrap returns the failure.
func (a Asked) Unwrap() error { return a.Err }

// maxAsked limits what a server may ask for: it may be well again long before, and nothing else
// happens on a machine that waits for its image.
const maxAsked = time.Minute

// WithAsked returns err with what the failed response asks for, or err itself if that is nothing.
// field returns a field of the response's header, as http.Header.Get.
func WithAsked(err error, field func(name string) string) error {
	if after := askedIn(field); after > 0 {
		return Asked{after, err}
	}
	return err
}

// AskedBy returns for how long the server has asked to be left alone; 0 if err is nothing of that
// kind.
func AskedBy(err error) time.Duration {
	asked, _ := errors.AsType[Asked](err)
	return asked.After
}

// dateFormat is the format of dates in HTTP. Two older ones may be received, but not sent.
const dateFormat = "Mon, 02 Jan 2006 15:04:05 GMT"

// askedIn returns the wait in a header, at most maxAsked. A date is compared with the time of the
// response, since this machine's clock may be wrong.
func askedIn(field func(name string) string) time.Duration {
	value := field("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(maxAsked/time.Second))) * time.Second
	}
	until, err := time.Parse(dateFormat, value)
	if err != nil {
		return 0
	}
	now, err := time.Parse(dateFormat, field("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, min(until.Sub(now), maxAsked))
}
