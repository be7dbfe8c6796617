package source

import (
	"fmt"
	"net/http"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
)

// tries counts consecutive failed tries to read a blob. A try that transfers minProgress bytes is a
// success, even if it fails afterwards.
type tries struct {
	failures int
	wrong    int           // consecutive wrong answers
	patience time.Duration // consecutive waits that the registry has asked for
	fresh    int64         // bytes since the last failure
}

// failed counts a try that has failed with err. It returns how long to wait for the next one, with
// a description of that for people, or the error to report if there were too many. A wait that the
// registry asks for is no failed try; idle connections to it are then closed, because what it
// counts are connections.
func (t *tries) failed(policy retry.Policy, from *registry, err error) (wait time.Duration, next string, _ error) {
	if t.fresh >= minProgress {
		t.failures, t.wrong, t.patience = 0, 0, 0
	}
	t.fresh = 0
	if isWrong(err) {
		t.wrong++
	} else {
		t.wrong = 0
	}
	patient := retry.AskedBy(err) > 0 && t.patience < policy.Bound
	if !patient {
		t.failures++
	}
	wait = policy.Wait(t.failures, err)
	next = fmt.Sprintf("try %d of %d", t.failures+1, policy.Tries)
	if patient {
		from.close()
		t.patience += wait
		next = "as the registry asks"
	}
	if t.failures >= policy.Tries || t.wrong >= maxWrong {
		return 0, "", &fault.Error{Kind: fault.KindOf(err), Hint: fault.HintOf(err),
			Err: fmt.Errorf("gave up after %d tries: %w", t.failures, err)}
	}
	return wait, next, nil
}

// maxDenials is how many tokens are refused at one offset before that is final. One is not enough: the
// token that another layer has got may expire before this one uses it.
const maxDenials = 2

// denials counts the tokens of a blob's reader that were refused at one offset, and replaced.
type denials struct {
	offset int64
	count  int
}

// mayRenew reports whether err is the refusal, at an offset, of a token that is to be replaced.
func (d *denials) mayRenew(err error, offset int64) bool {
	return statusOf(err) == http.StatusUnauthorized && (d.offset != offset || d.count < maxDenials)
}

// renewed counts a token that was replaced because it was refused at an offset.
func (d *denials) renewed(offset int64) {
	if d.offset != offset {
		*d = denials{offset: offset}
	}
	d.count++
}
