package rehearse_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"machine-pivot/internal/rehearse"
)

// luks returns the beginning of a disk with tokens.
func luks(tokens ...string) []byte {
	header := make([]byte, 16<<10)
	copy(header, "LUKS\xba\xbe\x00\x02")
	binary.BigEndian.PutUint64(header[8:], uint64(len(header)))
	for i := range tokens {
		tokens[i] = fmt.Sprintf("%q:%s", fmt.Sprint(i), tokens[i])
	}
	copy(header[4096:], `{"keyslots":{},"tokens":{`+strings.Join(tokens, ",")+`}}`)
	return header
}

func protected(header string) string { return base64.RawURLEncoding.EncodeToString([]byte(header)) }

func clevis(header string) string {
	return `{"type":"clevis","keyslots":["1"],"jwe":{"ciphertext":"x","protected":"` + protected(header) + `"}}`
}

func tpm2(pcrs string) string {
	return `{"alg":"dir","clevis":{"pin":"tpm2","tpm2":{"hash":"sha256","jwk_priv":"secret","pcr_bank":"sha256","pcr_ids":` + pcrs + `}}}`
}

const tang = `{"alg":"ECDH-ES","clevis":{"pin":"tang","tang":{"url":"http://tang"}}}`

func sss(needs int, pins ...string) string {
	for i := range pins {
		pins[i] = `"` + protected(pins[i]) + `..iv.text.tag"`
	}
	return fmt.Sprintf(`{"clevis":{"pin":"sss","sss":{"t":%d,"p":"x","jwe":[%s]}}}`, needs, strings.Join(pins, ","))
}

// TestTPM (P101): a disk that only a TPM unlocks, bound to registers that the new system changes, is nothing to start from.
func TestTPM(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name   string
		at     string
		disk   []byte
		pcrs   string // that refuse; "": none
		warned bool
	}{
		{"Ignition's own binding", "/", luks(clevis(tpm2(`""`))), "", false},
		{"to 7", "/", luks(clevis(tpm2(`"0,1,7"`))), "", false},
		{"to 8 and 9", "/", luks(clevis(tpm2(`"7,9, 8"`))), "8 9", false},
		{"to a number", "/var", luks(clevis(tpm2(`4`))), "4", false},
		{"to a list", "/", luks(clevis(tpm2(`["4",9]`))), "4 9", false},
		{"of another file system", "/srv", luks(clevis(tpm2(`"4"`))), "", true},
		{"tang besides", "/", luks(clevis(tpm2(`"4"`)), clevis(tang)), "", true},
		{"tang and TPM", "/", luks(clevis(sss(2, tang, tpm2(`"4"`)))), "4", false},
		{"tang or TPM", "/", luks(clevis(sss(1, tang, tpm2(`"4"`)))), "", true},
		{"systemd's", "/", luks(`{"type":"systemd-tpm2","tpm2-blob":"secret","tpm2-pcrs":[4,7],"tpm2-pubkey-pcrs":[11]}`), "4", false},
		{"systemd's, with a signed policy", "/", luks(`{"type":"systemd-tpm2","tpm2-pcrs":[],"tpm2-pubkey-pcrs":[11]}`), "", false},
		{"a recovery key", "/", luks(`{"type":"systemd-recovery"}`), "", false},
		{"damaged tokens", "/", luks(`{"type":"clevis","jwe":{"protected":"%"}}`, `{"type":"clevis"}`), "", false},
		{"LUKS1", "/", append([]byte("LUKS\xba\xbe\x00\x01"), make([]byte, 8192)...), "", false},
		{"cut off", "/", luks()[:5000], "", false},
		{"no JSON", "/", luks(`{`), "", false},
	} {
		facts := rehearse.Read(encrypted(t, c.at, c.disk), none, none)
		found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: w.running, Running: w.running}, facts)
		w.must(err)
		text := c.at + " stands on a disk that the TPM unlocks only while registers stay as they are that the new system changes (PCR "
		var refused []string
		note := ""
		if c.pcrs != "" {
			refused = []string{text + c.pcrs + ")"}
		} else if c.warned {
			note = "warning: " + text + "4)"
		}
		w.found(c.name, found, refused, note)
	}
	// The certificates by which another boot loader is started are in 7.
	facts := rehearse.Read(encrypted(t, "/", luks(clevis(tpm2(`"0,1,7"`)))), none, none)
	found, err := w.stage().Judge(t.Context(), rehearse.Change{Next: w.running, Running: w.running, BootLoader: true}, facts)
	w.must(err)
	w.found("to 7, with another boot loader", found, []string{"/ stands on a disk that the TPM unlocks only while registers stay as they are that the new system changes (PCR 7)"}, "")
	facts = rehearse.Read(encrypted(t, "/", luks(clevis(sss(2, tang, tpm2(`"4"`))))), none, none)
	want := []string{"crypt", "clevis", "clevis-pin-tang", "clevis-pin-tpm2", "clevis-pin-sss"}
	if len(facts.FileSystems) != 1 || !reflect.DeepEqual(facts.FileSystems[0].On, want) {
		t.Errorf("%+v", facts.FileSystems)
	}
}

func none(string) []string { return nil }

// encrypted returns the root of a machine with a file system on a disk with LUKS.
func encrypted(t *testing.T, at string, disk []byte) string {
	root := t.TempDir()
	at = strings.Replace(at, "/", "/sysroot", map[bool]int{true: 1}[at == "/"])
	for name, content := range map[string]string{
		"sys/devices/virtual/block/dm-0/dm/uuid": "CRYPT-LUKS2-1-root\n",
		"sys/devices/virtual/block/vda/dev":      "252:0\n",
		"dev/block/252:0":                        string(disk),
		"proc/self/mountinfo":                    "24 1 253:0 / " + root + at + " rw - ext4 /dev/dm-0 rw\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dm := filepath.Join(root, "sys/devices/virtual/block/dm-0")
	for _, dir := range []string{filepath.Join(dm, "slaves"), filepath.Join(root, "sys/dev/block")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{filepath.Join(dm, "slaves/vda"): "../../vda", filepath.Join(root, "sys/dev/block/253:0"): dm} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
