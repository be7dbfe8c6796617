package admission

import (
	"context"
	"net/http"
	"runtime"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// validator answers the API server about the objects of a fleet. It changes nothing, so a request that is only
// a trial (dry run) is judged like any other.
type validator struct {
	platform []string // users
	policy   kargs.Policy
	fleet    *fleet
	client   client.Client
	turns    chan struct{} // see newValidator
}

// newValidator returns a validator. It judges a few MachineConfigs at a time, because one may have to expand files
// of a hundred times its size.
func newValidator(platform []string, f *fleet, c client.Client) *validator {
	return &validator{platform: platform, policy: kargs.DefaultPolicy(), fleet: f, client: c, turns: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Handle implements admission.Handler.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.SubResource != "" {
		return admission.Allowed("") // a status is not judged
	}
	if req.Kind.Kind == "MachineConfig" {
		select {
		case v.turns <- struct{}{}:
			defer func() { <-v.turns }()
		case <-ctx.Done():
			return admission.Errored(http.StatusServiceUnavailable, ctx.Err())
		}
	}
	known := v.fleet.known(ctx)
	known.Platform, known.Policy = v.platform, v.policy
	verdict := Judge(Request{
		Kind: req.Kind.Kind, Operation: req.Operation, User: req.UserInfo.Username,
		Object: req.Object.Raw, Old: req.OldObject.Raw,
	}, known)
	return v.answer(ctx, req, verdict)
}

// answer turns a verdict into an answer. It asks the API server whether the user may weaken security only if
// nothing else is wrong.
func (v *validator) answer(ctx context.Context, req admission.Request, verdict Verdict) admission.Response {
	switch {
	case verdict.Refused != "":
		return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, verdict.Refused)
	case verdict.Report.Failed():
		return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "it has problems:\n"+message(verdict.Report)).
			WithWarnings(warnings(verdict.Report)...)
	case len(verdict.Weakens) > 0:
		may, err := v.mayWeaken(ctx, req, verdict.Name)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		if !may {
			return refuse(http.StatusForbidden, metav1.StatusReasonForbidden, refusal(req.UserInfo.Username, verdict.Name, verdict.Weakens))
		}
	}
	return admission.Allowed("").WithWarnings(warnings(verdict.Report)...)
}

// refuse returns an answer of the API server's own kind.
func refuse(code int32, reason metav1.StatusReason, message string) admission.Response {
	response := admission.Denied("")
	response.Result = &metav1.Status{Code: code, Reason: reason, Message: message}
	return response
}

// mayWeaken asks the API server whether the user of a request has VerbWeaken. An object without a name so far needs the
// right to all.
func (v *validator) mayWeaken(ctx context.Context, req admission.Request, name string) (bool, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range req.UserInfo.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: api.OperatorGroup, Version: api.OperatorVersion, Resource: "machineconfigs", Verb: VerbWeaken, Name: name,
		},
	}}
	err := v.client.Create(ctx, review)
	return review.Status.Allowed, err
}

// invalid returns an answer with all that is wrong with an object.
func invalid(report problem.Report) admission.Response {
	return refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message(report))
}
