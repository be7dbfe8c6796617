package configserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machine-pivot/internal/author/provision"
)

// secrets is the store of tokens in Secrets of one namespace.
type secrets struct {
	client    client.Client
	live      client.Reader
	namespace string
}

// errNoToken is the error of a Secret that is not, or not any more, one of a token.
var errNoToken = errors.New("the Secret is none of a token")

func (s *secrets) read(ctx context.Context, name string) (kept, error) {
	var secret corev1.Secret
	if err := s.live.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, &secret); err != nil {
		return kept{}, err
	}
	k, err := keep(&secret)
	if err != nil {
		return kept{}, fmt.Errorf("%w: %w", errNoToken, err)
	}
	return k, nil
}

func (s *secrets) save(ctx context.Context, k kept, ledger provision.Ledger) (kept, error) {
	state, err := ledger.JSON()
	if err != nil {
		return kept{}, err
	}
	// With the version in it, a patch of another version is a conflict.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": k.version},
		"data":     map[string][]byte{provision.TokenState: state},
	})
	if err != nil {
		return kept{}, err
	}
	secret := corev1.Secret{}
	secret.Namespace, secret.Name = s.namespace, k.name
	if err := s.client.Patch(ctx, &secret, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return kept{}, err
	}
	return keep(&secret)
}

// keep reads a token from its Secret.
func keep(secret *corev1.Secret) (kept, error) {
	if secret.Type != provision.TokenSecretType {
		return kept{}, fmt.Errorf("its type is not %s", provision.TokenSecretType)
	}
	t, err := provision.ParseToken(secret.Data)
	return kept{Token: t, name: secret.Name, version: secret.ResourceVersion}, err
}

// tokenReconciler tells the gate of the tokens.
type tokenReconciler struct {
	client client.Reader
	gate   *gate
}

// Reconcile implements reconcile.Reconciler. A Secret that is wrong is reported, and admits nobody: who has
// made it wrong may have meant to take it away. It is looked at again when it changes.
func (t *tokenReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var secret corev1.Secret
	err := t.client.Get(ctx, request.NamespacedName, &secret)
	if apierrors.IsNotFound(err) {
		t.gate.remove(request.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	k, err := keep(&secret)
	if err != nil {
		t.gate.remove(request.Name)
		log.FromContext(ctx).Error(err, "a token admits nobody", "secret", request.String())
		return ctrl.Result{}, nil
	}
	t.gate.set(k)
	return ctrl.Result{}, nil
}
