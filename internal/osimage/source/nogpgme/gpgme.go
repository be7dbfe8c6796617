// Package gpgme replaces the binding of the C library gpgme, which the image library imports unless the build tag
// containers_image_openpgp is set (the Makefile sets it). With it, `go build` works without the tag, a C compiler and
// headers. It declares the names that the image library uses, but verifies nothing. New fails, so a program without the
// tag refuses every policy with a GPG signature, and reports the reason.
package gpgme

import (
	"errors"
	"io"
	"os"
)

var errAbsent = errors.New("this program was built without OpenPGP: build it with make, or with the tag containers_image_openpgp")

// The types that the image library uses.
type (
	Protocol     int
	PinEntryMode int
	SigMode      int
	Validity     int
	Callback     func(hint string, previousBad bool, to *os.File) error
)

// Values of these types. Nothing depends on them.
const (
	ProtocolOpenPGP  Protocol     = 0
	PinEntryLoopback PinEntryMode = 4
	SigModeNormal    SigMode      = 0
	ValidityNever    Validity     = 3
)

// Context is never created, because New fails.
type Context struct{}

// New fails.
func New() (*Context, error) { return nil, errAbsent }

// The methods are never called, because New fails. They fail too.

func (*Context) SetProtocol(Protocol) error                   { return errAbsent }
func (*Context) SetEngineInfo(Protocol, string, string) error { return errAbsent }
func (*Context) SetArmor(bool)                                {}
func (*Context) SetTextMode(bool)                             {}
func (*Context) SetCallback(Callback) error                   { return errAbsent }
func (*Context) SetPinEntryMode(PinEntryMode) error           { return errAbsent }
func (*Context) GetKey(string, bool) (*Key, error)            { return nil, errAbsent }
func (*Context) Sign([]*Key, *Data, *Data, SigMode) error     { return errAbsent }
func (*Context) Import(*Data) (*ImportResult, error)          { return nil, errAbsent }
func (*Context) Verify(*Data, *Data, *Data) (string, []Signature, error) {
	return "", nil, errAbsent
}

// Data is never created.
type Data struct{}

// NewDataBytes fails.
func NewDataBytes([]byte) (*Data, error) { return nil, errAbsent }

// NewDataWriter fails.
func NewDataWriter(io.Writer) (*Data, error) { return nil, errAbsent }

// Key is a GPG key. None is ever returned.
type Key struct{}

// Fingerprint is empty.
func (*Key) Fingerprint() string { return "" }

// Signature is the result type of Verify.
type Signature struct {
	Fingerprint            string
	Status, ValidityReason error
	Validity               Validity
	WrongKeyUsage          bool
}

// ImportResult is the result type of Import.
type ImportResult struct{ Imports []ImportStatus }

// ImportStatus is one imported key.
type ImportStatus struct {
	Result      error
	Fingerprint string
}
