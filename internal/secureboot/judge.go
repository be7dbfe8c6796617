package secureboot

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Refusal says that a program is not started.
type Refusal struct {
	Why     string
	Signers []*x509.Certificate // of its good signatures, of which none is trusted
	Revoked bool                // it, or who signed it, was trusted, and is no longer
}

func (r *Refusal) Error() string { return r.Why }

// Check returns nil if the program is started, and a *Refusal if it is not. Another error says that this is unknown. A
// hash in the lists of what is denied counts most, then one in the allowed lists, and then the signatures. One good
// signature of an allowed signer is enough for shim; one of a denied signer is too many for the firmware.
func (j *Judge) Check(r io.ReaderAt, size int64) error {
	p, err := open(r, size)
	if errors.Is(err, errFormat) {
		return &Refusal{Why: err.Error()}
	}
	if err != nil {
		return err
	}
	if j.denied.names(p) {
		return &Refusal{Why: "it is one of those that are denied by their hashes", Revoked: true}
	}
	if !j.allowed.names(p) {
		if err := j.checkSignatures(p); err != nil {
			return err
		}
	}
	return j.checkLevel(p)
}

func (j *Judge) checkSignatures(p program) error {
	if len(p.signatures) == 0 {
		return &Refusal{Why: "it has no signature"}
	}
	refusal, unsure := &Refusal{}, error(nil)
	for _, signature := range p.signatures {
		certs, err := chain(signature, p.sha256)
		switch {
		case errors.Is(err, errAltered):
			refusal.Why = err.Error()
			continue
		case err != nil:
			unsure = err
			continue
		}
		names := describe(certs)
		if j.denied.signers(certs) {
			refusal.Why, refusal.Revoked = "it is signed by "+names+", which is denied", true
			if !j.shim {
				return refusal
			}
			continue
		}
		if j.allowed.signers(certs) {
			return nil
		}
		refusal.Why, refusal.Signers = "it is signed by "+names+", and neither is trusted", append(refusal.Signers, certs[0])
	}
	if unsure == nil && j.allowed.unread > 0 && len(refusal.Signers) > 0 {
		unsure = fmt.Errorf("%d trusted certificates cannot be read here", j.allowed.unread)
	}
	if unsure != nil {
		return unsure
	}
	return refusal
}

func describe(chain []*x509.Certificate) string {
	return fmt.Sprintf("%q, issued by %q", chain[0].Subject.CommonName, chain[len(chain)-1].Issuer.CommonName)
}

// checkLevel compares the generations of a program's components with the lowest that may start. A kernel need not name any.
func (j *Judge) checkLevel(p program) error {
	own, err := p.section(".sbat")
	if err != nil || !j.shim {
		return err
	}
	has := readLevel(own)
	for _, component := range slices.Sorted(maps.Keys(j.level)) {
		lowest := j.level[component]
		if generation, named := has[component]; named && generation < lowest {
			return &Refusal{Why: fmt.Sprintf("its component %s has generation %d, and shim starts none below %d", component, generation, lowest), Revoked: true}
		}
	}
	return nil
}

// Shim reports whether shim judges, and not the firmware.
func (j *Judge) Shim() bool { return j.shim }

// Trusted returns the names of the signers that are trusted, for a message.
func (j *Judge) Trusted() string {
	var names []string
	for _, c := range j.allowed.certs {
		if name := c.Subject.CommonName; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
