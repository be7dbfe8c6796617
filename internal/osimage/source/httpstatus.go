package source

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"github.com/docker/distribution/registry/api/errcode"
	"go.podman.io/image/v5/docker"

	"machine-pivot/internal/fault"
)

// status knows a registry's answers. Those of a registry in trouble are
// transient, its refusals permanent.
func (j judge) status(err error) *fault.Error {
	status := statusOf(err)
	switch {
	case status == 0:
		return nil
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return fault.New(fault.Unavailable, "%w", err).WithHint("%s is in trouble or overloaded; try again later", j.ref.Host())
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fault.New(fault.Refused, "%w", err).WithHint("%s", j.secret.hint(j.ref.Host()))
	case status == http.StatusNotFound:
		return fault.New(fault.Refused, "%w", err).
			WithHint("is the reference right, and is the image still in the registry? Some registries also say this for want of credentials: %s",
				j.secret.hint(j.ref.Host()))
	}
	return fault.New(fault.Refused, "%w", err)
}

// statusOf is the HTTP status behind an error of the library, or 0.
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
	// An error in the registry's own words. The library makes these of 4xx
	// answers only; their code stands for the status, if it is a known one.
	var coder errcode.ErrorCoder
	if !errors.As(err, &coder) {
		return statusInText(err)
	}
	code := coder.ErrorCode()
	if status := code.Descriptor().HTTPStatusCode; status < 500 || code == errcode.ErrorCodeUnavailable {
		return status
	}
	return http.StatusBadRequest
}

// statusInText finds the status where the library gives it in words only: for
// 4xx answers whose body is not the protocol's JSON, as proxies make them.
func statusInText(err error) int {
	match := regexp.MustCompile(`StatusCode: ([0-9]{3}), `).FindStringSubmatch(err.Error())
	if match == nil {
		return 0
	}
	status, _ := strconv.Atoi(match[1]) // three digits always parse
	return status
}
