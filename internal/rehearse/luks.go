package rehearse

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Pin is a way in which an encrypted disk is unlocked without a person. It has no secrets.
type Pin struct {
	Kind string `json:"kind"` // tpm2, tang, sss, or another pin of clevis
	PCRs []int  `json:"pcrs"` // of tpm2: the registers that must not change
	// Needs is how many of Pins are needed; of sss.
	Needs int   `json:"needs,omitempty"`
	Pins  []Pin `json:"pins,omitempty"`
}

// unlocks reports whether a pin still unlocks after registers have changed.
func (p Pin) unlocks(changed []int) bool {
	if p.Kind == "sss" {
		left := slices.DeleteFunc(slices.Clone(p.Pins), func(p Pin) bool { return !p.unlocks(changed) })
		return len(left) >= p.Needs
	}
	return !slices.ContainsFunc(p.PCRs, func(pcr int) bool { return slices.Contains(changed, pcr) })
}

// kinds returns what is asked of dracut for a pin.
func (p Pin) kinds() (all []string) {
	for _, p := range p.Pins {
		all = append(all, p.kinds()...)
	}
	if p.Kind == "systemd-tpm2" {
		return []string{"tpm2-tss"}
	}
	return append(all, "clevis", "clevis-pin-"+p.Kind)
}

// readPins returns the pins in the LUKS2 header of a device; none if it has no such header, or one that cannot be used.
func readPins(device string) []Pin {
	disk, err := os.Open(device)
	if err != nil {
		return nil
	}
	defer disk.Close()
	pins, _ := pinsOf(disk)
	return pins
}

// maxHeader limits a LUKS2 header, in bytes. The format has sizes up to 4 MiB.
const maxHeader = 4 << 20

// pinsOf reads a LUKS2 header (LUKS2 On-Disk Format Specification, 2.1): a binary part, and then JSON up to its size.
func pinsOf(from io.Reader) (pins []Pin, err error) {
	var binaryPart [4096]byte
	if _, err := io.ReadFull(from, binaryPart[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint64(binaryPart[8:])
	if !bytes.HasPrefix(binaryPart[:], []byte("LUKS\xba\xbe\x00\x02")) || size <= uint64(len(binaryPart)) || size > maxHeader {
		return nil, errors.New("it is no header of LUKS2")
	}
	text := make([]byte, size-uint64(len(binaryPart)))
	if _, err := io.ReadFull(from, text); err != nil {
		return nil, err
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	var header struct {
		Tokens map[string]struct {
			Type string                     `json:"type"`
			JWE  struct{ Protected string } `json:"jwe"`
			PCRs []int                      `json:"tpm2-pcrs"`
		} `json:"tokens"`
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(header.Tokens)) {
		switch token := header.Tokens[id]; token.Type {
		case "systemd-tpm2": // tpm2-pubkey-pcrs are those of a signed policy, which follows the image
			pins = append(pins, Pin{Kind: token.Type, PCRs: append([]int{}, token.PCRs...)})
		case "clevis":
			if pin, err := clevisPin(token.JWE.Protected, 0); err == nil {
				pins = append(pins, pin)
			}
		}
	}
	return pins, nil
}

// clevisPin reads the protected header of a JWE of clevis. One of sss has those of its pins, down to a depth that clevis
// does not reach.
func clevisPin(protected string, depth int) (pin Pin, err error) {
	if depth > 8 {
		return pin, errors.New("it has too many levels")
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(protected, "="))
	if err != nil {
		return pin, err
	}
	var header struct {
		Clevis struct {
			Pin  string `json:"pin"`
			TPM2 struct {
				PCRs any `json:"pcr_ids"`
			} `json:"tpm2"`
			SSS struct {
				Needs int      `json:"t"`
				JWE   []string `json:"jwe"`
			} `json:"sss"`
		} `json:"clevis"`
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return pin, err
	}
	pin = Pin{Kind: header.Clevis.Pin, PCRs: pcrs(header.Clevis.TPM2.PCRs), Needs: header.Clevis.SSS.Needs}
	for _, jwe := range header.Clevis.SSS.JWE {
		part, _, _ := strings.Cut(jwe, ".")
		inner, err := clevisPin(part, depth+1)
		if err != nil {
			return pin, err
		}
		pin.Pins = append(pin.Pins, inner)
	}
	return pin, nil
}

// pcrs returns the registers that clevis names: a text with commas, a number, or a list of either.
func pcrs(named any) []int {
	all := []int{}
	switch named := named.(type) {
	case string:
		for text := range strings.SplitSeq(named, ",") {
			if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
				all = append(all, n)
			}
		}
	case float64:
		all = append(all, int(named))
	case []any:
		for _, one := range named {
			all = append(all, pcrs(one)...)
		}
	}
	return all
}
