package source

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/docker/distribution/registry/api/errcode"
	v2 "github.com/docker/distribution/registry/api/v2"
	"go.podman.io/image/v5/docker"

	"machine-pivot/internal/fault"
)

// status recognizes the HTTP status of a response. Server errors and overload are transient,
// refusals are permanent.
func (c classifier) status(err error) *fault.Error {
	status := statusOf(err)
	switch {
	case status == 0:
		return nil
	case isTransientStatus(status):
		return fault.New(fault.Unavailable, "%w", err).WithHint("%s is in trouble or overloaded; try again later", c.ref.Host())
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fault.New(fault.Refused, "%w", err).WithHint("%s", c.secret.hint(c.ref.Host()))
	case status == http.StatusNotFound:
		return fault.New(fault.Refused, "%w", err).WithHint("%s", c.notFoundHint(err))
	}
	return fault.New(fault.Refused, "%w", err)
}

// isTransientStatus reports whether a later request may succeed after a response with a status.
func isTransientStatus(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// notFoundHint returns the hint for something that a registry does not have. Only a missing repository can be one that
// the credentials do not show: who is told that a tag or a part is unknown has been let into the repository.
func (c classifier) notFoundHint(err error) string {
	var code errcode.ErrorCode
	if coder := errcode.ErrorCoder(nil); errors.As(err, &coder) {
		code = coder.ErrorCode()
	}
	switch {
	case c.part, code == v2.ErrorCodeBlobUnknown, code == v2.ErrorCodeManifestBlobUnknown:
		return fmt.Sprintf("%s does not have all parts of the image: push it again", c.ref.Host())
	case code == v2.ErrorCodeManifestUnknown && c.ref.Digest() != "":
		return fmt.Sprintf("is the digest right, and is the image still in the repository? skopeo list-tags docker://%s shows what it has", c.ref.Name())
	case code == v2.ErrorCodeManifestUnknown:
		return fmt.Sprintf("is the tag right? skopeo list-tags docker://%s shows those that there are", c.ref.Name())
	}
	return fmt.Sprintf("is the reference right, and is the image still in the registry? Some registries also say this for want of credentials: %s",
		c.secret.hint(c.ref.Host()))
}

// statusOf returns the HTTP status behind an error of the library, or 0.
func statusOf(err error) int {
	if errors.Is(err, docker.ErrTooManyRequests) {
		return http.StatusTooManyRequests
	}
	if _, ok := errors.AsType[docker.ErrUnauthorizedForCredentials](err); ok {
		return http.StatusUnauthorized
	}
	if e, ok := errors.AsType[docker.UnexpectedHTTPStatusError](err); ok {
		return e.StatusCode
	}
	if e, ok := errors.AsType[answer](err); ok {
		return e.status
	}
	// An error in the format of the registry protocol. The library returns these for 4xx
	// responses only; a known error code implies the status.
	var coder errcode.ErrorCoder
	if !errors.As(err, &coder) {
		return statusField(err)
	}
	code := coder.ErrorCode()
	if status := code.Descriptor().HTTPStatusCode; status < 500 || code == errcode.ErrorCodeUnavailable {
		return status
	}
	return http.StatusBadRequest
}

// statusField returns the field StatusCode of the first error in err's tree that has one, else 0. The library uses a type
// with this field for 4xx responses without the protocol's JSON as their body, such as those of proxies. The type is not
// exported, so errors.As cannot find it. TestStatusOfAnswers fails if a release of the library drops the field.
func statusField(err error) int {
	value := reflect.Indirect(reflect.ValueOf(err))
	if value.Kind() == reflect.Struct {
		field, found := value.Type().FieldByName("StatusCode")
		if found && len(field.Index) == 1 && field.Type.Kind() == reflect.Int { // not a promoted field: the embedded struct may be nil
			return int(value.FieldByIndex(field.Index).Int())
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return statusField(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if status := statusField(inner); status != 0 {
				return status
			}
		}
	}
	return 0
}
