package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
)

// The objects of the webhooks in deploy/fleet/webhooks.yaml.
const (
	Webhooks   = "pivot-fleet"          // the name of both configurations
	Service    = "pivot-fleet-webhooks" // the name of the Service
	SecretName = "pivot-fleet-webhooks"
)

// lookEvery is how often the certificates and the configurations of the webhooks are looked at.
const lookEvery = 30 * time.Second

// keeper keeps the certificates of the webhooks in a Secret, and what API servers trust in the configurations of the
// webhooks. Each replica has one, and all of them come to the same. What they make is written only if nobody else was
// faster, and what they use is what is written.
type keeper struct {
	reader    client.Reader // not of a cache: RBAC gives only these objects, by their names
	writer    client.Client
	namespace string
	more      []string // names, beside those of the Service
	now       func() time.Time
	log       logr.Logger
	serving   atomic.Pointer[tls.Certificate]
}

// run keeps them until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	again := time.Tick(lookEvery)
	for {
		err := k.look(ctx)
		for conflict := 0; err != nil && api.HasChanged(err) && conflict < 5; conflict++ {
			err = k.look(ctx)
		}
		if err != nil && ctx.Err() == nil {
			k.log.Error(err, "cannot keep the certificates of the webhooks; it is tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		}
	}
}

// GetCertificate implements the member of tls.Config.
func (k *keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.serving.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// look makes what is missing, and uses it.
func (k *keeper) look(ctx context.Context) error {
	var secret corev1.Secret
	err := k.reader.Get(ctx, types.NamespacedName{Namespace: k.namespace, Name: SecretName}, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	has := materialOf(secret.Data)
	published, err := k.publish(ctx, has.bundle())
	should, problem := has.renew(k.now(), k.names(), published)
	if problem != nil {
		return errors.Join(err, problem)
	}
	if !should.equal(has) {
		if problem := k.write(ctx, secret, should); problem != nil {
			return problem // without err, so that a lost race is recognized
		}
		_, err = k.publish(ctx, should.bundle())
	}
	return errors.Join(err, k.use(should.Serving))
}

// names returns the names by which API servers call the webhooks.
func (k *keeper) names() []string {
	return append([]string{Service + "." + k.namespace + ".svc"}, k.more...)
}

// write writes the Secret, if it is as it was read.
func (k *keeper) write(ctx context.Context, secret corev1.Secret, m material) error {
	secret.Data = m.data()
	if secret.ResourceVersion != "" {
		return k.writer.Update(ctx, &secret)
	}
	secret.ObjectMeta = metav1.ObjectMeta{Namespace: k.namespace, Name: SecretName}
	return k.writer.Create(ctx, &secret)
}

// use has the server use a certificate from the next connection on.
func (k *keeper) use(p pair) error {
	c, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate of the webhooks: %w", err)
	}
	k.serving.Store(&c)
	return nil
}

// The keys of the Secret.
const (
	keyAuthority, keyAuthorityKey = "ca.crt", "ca.key"
	keyNext, keyNextKey           = "next-ca.crt", "next-ca.key"
	keyServing, keyServingKey     = "tls.crt", "tls.key"
	keyOld                        = "old-ca.crt"
)

func materialOf(data map[string][]byte) material {
	return material{
		Authority: pair{data[keyAuthority], data[keyAuthorityKey]},
		Next:      pair{data[keyNext], data[keyNextKey]},
		Serving:   pair{data[keyServing], data[keyServingKey]},
		Old:       data[keyOld],
	}
}

func (m material) data() map[string][]byte {
	data := map[string][]byte{
		keyAuthority: m.Authority.Certificate, keyAuthorityKey: m.Authority.Key,
		keyServing: m.Serving.Certificate, keyServingKey: m.Serving.Key,
		keyNext: m.Next.Certificate, keyNextKey: m.Next.Key, keyOld: m.Old,
	}
	for key, value := range data {
		if len(value) == 0 {
			delete(data, key)
		}
	}
	return data
}

// publish has the configurations of the webhooks name the authorities, and reports whether they do.
func (k *keeper) publish(ctx context.Context, bundle []byte) (bool, error) {
	if len(bundle) == 0 {
		return false, nil
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	err := errors.Join(client.IgnoreNotFound(k.reader.Get(ctx, types.NamespacedName{Name: Webhooks}, &validating)),
		client.IgnoreNotFound(k.reader.Get(ctx, types.NamespacedName{Name: Webhooks}, &mutating))) // they are optional
	if err != nil {
		return false, fmt.Errorf("cannot read the configurations of the webhooks: %w", err)
	}
	var a, b bundles
	for i, w := range validating.Webhooks {
		a.add(i, w.ClientConfig.CABundle, bundle)
	}
	for i, w := range mutating.Webhooks {
		b.add(i, w.ClientConfig.CABundle, bundle)
	}
	err = errors.Join(a.apply(ctx, k.writer, &validating), b.apply(ctx, k.writer, &mutating))
	return err == nil, err
}

// bundles is a JSON patch that writes the authorities into the configuration of webhooks.
type bundles []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (b *bundles) add(i int, has, should []byte) {
	if !bytes.Equal(has, should) {
		*b = append(*b, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), should})
	}
}

// apply writes the authorities. It fails if the webhooks are others than those that were read.
func (b bundles) apply(ctx context.Context, c client.Client, o client.Object) error {
	if len(b) == 0 {
		return nil
	}
	text, err := json.Marshal(append(b, operation{"replace", "/metadata/resourceVersion", o.GetResourceVersion()}))
	if err != nil {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(types.JSONPatchType, text))
}
