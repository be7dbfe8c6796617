package view

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/printable"
)

// removed stands for what was taken out.
const removed = "(removed)"

// cleaner takes secrets out of objects and logs. What may hold anything, such as the contents of files, is replaced by
// its size and a digest. What is known to be harmless is kept; all text that is kept is searched for what looks like a
// secret.
type cleaner struct {
	// key of the digests. Equal contents have equal digests within one archive, but nobody can guess a short
	// secret and compare its digest.
	key []byte
}

// digest describes a content without telling it.
func (c cleaner) digest(content []byte) string {
	mac := hmac.New(sha256.New, c.key)
	mac.Write(content)
	return fmt.Sprintf("(removed: %d bytes, digest %s)", len(content), hex.EncodeToString(mac.Sum(nil)[:8]))
}

// pattern matches secrets in text.
type pattern struct {
	match *regexp.Regexp
	with  string // what replaces them
}

func patterns() []pattern {
	return []pattern{
		{privateKey, removed}, {encodedPEM, removed}, {userinfo, "://"}, {queryValue, "$1" + removed}, {dataURL, "data:" + removed},
		{cryptHash, removed}, {shadowHash, "$1" + removed + "$2"}, {sshKey, removed}, {webToken, removed},
		{header, "$1" + removed}, {authorization, "$1 " + removed}, {block, "$1" + removed + "\n"}, {element, "$1" + removed},
		{pair, "$1" + removed}, {flagged, "$1" + removed},
	}
}

// secretWord matches a part of a name that says that its value is a secret. A bare "key" is none: labels and taints have it.
const secretWord = `(?:pass(?:wd|word|phrase)?|secret|token|credentials?|[a-z0-9]+[_-]?key|authorization|pwd|psk|auth)`

var (
	// privateKey matches a key of PEM, OpenPGP, PuTTY or age, also if its end was cut off or its line feeds are escaped.
	privateKey = regexp.MustCompile(`(?s)-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}.*?(?:-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}|$)` +
		`|PuTTY-User-Key-File-.*?(?:Private-MAC: *[0-9a-f]+|$)|AGE-SECRET-KEY-1[A-Z0-9]+`)
	encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`) // of -----BEGIN
	userinfo   = regexp.MustCompile(`:(?:\\*/){2}[^/\s"'<>]+@`)      // in JSON, a slash may be escaped
	queryValue = regexp.MustCompile(`((?:[?&#]|&amp;)[^=\s&#"'<>]+=)[^&\s"'<>]+`)
	dataURL    = regexp.MustCompile(`(?i)\bdata:(?:[^\s"',]|=\\*"[^"]*")*,[^\s"']*`)
	// cryptHash matches a hash of crypt(5), of GRUB, or of LDAP.
	cryptHash  = regexp.MustCompile(`\$[A-Za-z0-9][A-Za-z0-9,=-]*\$[^\s:"']{8,}|grub\.pbkdf2\.[^\s"']+|\{(?:S?SHA|S?MD5|CRYPT|PBKDF2)[A-Z0-9_-]*\}[^\s"',]+`)
	shadowHash = regexp.MustCompile(`\b([a-z_][a-z0-9_-]*:)[A-Za-z0-9./]{13}(:[0-9]*:)`) // of DES
	sshKey     = regexp.MustCompile(`(?:(?:ssh|ecdsa|sk)-[a-z0-9@.-]+\s+)?AAAA[A-Za-z0-9+/]{20,}=*`)
	webToken   = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}`)
	// header matches a header of HTTP with all its value, and authorization the value alone.
	header        = regexp.MustCompile(`(?i)((?:authorization|cookie)\\*["']?\s*[=:]\s*\[?\\*["']?)[^\n"'\\]+`)
	authorization = regexp.MustCompile(`(?i)\b(bearer|basic)[\s:=]+["']?[A-Za-z0-9+/=._~-]{4,}`)
	// block matches the indented lines of a value in YAML, element one in XML, pair one beside its name, flagged an argument
	// behind its flag.
	block   = regexp.MustCompile(`(?i)(` + secretWord + `[\w.-]*["']?\s*:[ \t]*)(?:[|>][-+0-9]*[ \t]*|"[^"\n]*|'[^'\n]*)?\n(?:(?:[ \t]+|- )[^\n]*(?:\n|$))+`)
	element = regexp.MustCompile(`(?i)(<[^<>]*` + secretWord + `[^<>]*>)[^<]+`)
	pair    = regexp.MustCompile(`(?i)(name\\*["']?\s*[:=]\s*\\*["']?[\w.-]*` + secretWord + `[\w.-]*\\*["']?[,\s]+\\*["']?value\\*["']?\s*[:=]\s*)(?:` + values + `)`)
	flagged = regexp.MustCompile(`(?i)((?:--?[\w-]*` + secretWord + `[\w-]*|\blogin\s+\S+\s+password)(?:\s+|\\*["']\s*,\s*))(?:"[^"]*"|'[^']*'|[^\s-]\S*)`)
	// assigned matches a name that says that its value is a secret, with the value: as in a shell, YAML or JSON, and as a flag.
	assigned = regexp.MustCompile(`(?i)(` + secretWord + `[\w.-]*\\*["']?\s*(?:=>|:=|->|[=:])\s*(?:[&!]\S+\s+)*)(?:` + values + `)`)
	// secretFlag matches a flag with its value in the next argument.
	secretFlag = regexp.MustCompile(`(?i)^--?[\w-]*` + secretWord + `[\w-]*$`)
	secretName = regexp.MustCompile(`(?i)` + secretWord)
)

// values matches a value: quoted, quoted within a quoted text, a list, or up to white space.
const values = `"""(?s:.*?)"""|\$\([^)]*\)|\{[^}]*\}|\\+"[^"]*"|"(?:\\.|[^"\\])*"|'[^']*'|` + "`[^`]*`" + `|\[[^\]]*\]|(?:\\[^\n"]|[^\s}"'])+`

// text returns text without what looks like a secret.
func (c cleaner) text(s string) string {
	for _, p := range patterns() {
		s = p.match.ReplaceAllString(s, p.with)
	}
	return withoutAssigned(s)
}

// withoutAssigned applies assigned. It is slow, so most text is not searched: that without any of its words.
func withoutAssigned(s string) string {
	lower := strings.ToLower(s)
	for _, word := range []string{"pass", "pwd", "psk", "secret", "token", "credential", "key", "auth"} {
		if strings.Contains(lower, word) {
			return assigned.ReplaceAllString(s, "$1"+removed)
		}
	}
	return s
}

// log returns lines of a log, printable and without what looks like a secret.
func (c cleaner) log(data []byte) []byte {
	text := string(data)
	for _, p := range patterns() { // on the whole text: keys have several lines
		text = p.match.ReplaceAllString(text, p.with)
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(printable.Line(strings.TrimSuffix(withoutAssigned(line), "\n")) + "\n")
	}
	return []byte(out.String())
}

// ownAnnotation reports whether an annotation is one of pivot's or of the operator's, which are known to hold no
// secrets. Of others only the names are kept: kubectl keeps a whole copy of an object in one.
func ownAnnotation(name string) bool {
	return strings.HasPrefix(name, api.OperatorGroup+"/") || strings.HasPrefix(name, api.Prefix+"/")
}

// object returns an object of any kind without its secrets.
func (c cleaner) object(text []byte) (any, error) {
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if metadata, ok := o["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			for name := range annotations {
				if !ownAnnotation(name) {
					annotations[name] = removed
				}
			}
		}
	}
	return c.value(o), nil
}

// value cleans a value of JSON.
func (c cleaner) value(v any) any {
	switch v := v.(type) {
	case string:
		return c.text(v)
	case []any:
		for i, element := range v {
			if flag, ok := before(v, i).(string); ok && secretFlag.MatchString(flag) {
				v[i] = removed
				continue
			}
			v[i] = c.value(element)
		}
	case map[string]any:
		for name, member := range v {
			v[name] = c.member(name, member)
		}
		if name, ok := v["name"].(string); ok && v["value"] != nil && secretName.MatchString(name) {
			v["value"] = removed
		}
	}
	return v
}

// before returns the element before another one.
func before(all []any, i int) any {
	if i == 0 {
		return nil
	}
	return all[i-1]
}

// member cleans a member of an object. The environment of containers, and any value with the name of a secret, are
// removed as a whole; the name of a Secret is not one.
func (c cleaner) member(name string, value any) any {
	if slices.Contains([]string{"env", "envFrom", "data", "stringData", "binaryData", "httpHeaders", "images"}, name) {
		return removed
	}
	if name == "secretName" || !secretName.MatchString(name) {
		return c.value(value)
	}
	switch value := value.(type) {
	case bool, nil, map[string]any: // as automountServiceAccountToken, or a volume's secret
		return c.value(value)
	case string:
		if value == "" {
			return value
		}
	}
	return removed
}

// machineConfig returns a MachineConfig without contents. Of its spec only what is named here is kept.
func (c cleaner) machineConfig(text []byte) (any, error) {
	cleaned, err := c.object(text)
	if err != nil {
		return nil, err
	}
	var raw struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	spec := map[string]any{}
	for name, member := range raw.Spec {
		if !slices.Contains([]string{"osImageURL", "baseOSExtensionsContainerImage", "kernelArguments", "extensions", "fips", "kernelType"}, name) {
			spec[name] = c.digest(member)
			continue
		}
		var v any
		if err := json.Unmarshal(member, &v); err != nil {
			return nil, err
		}
		spec[name] = c.value(v)
	}
	if config, ok := raw.Spec["config"]; ok {
		spec["config"] = c.config(config)
	}
	cleaned.(map[string]any)["spec"] = spec
	return cleaned, nil
}

// config returns what an Ignition config has: paths and names, each with the digest of everything about it.
func (c cleaner) config(text []byte) any {
	type entry struct{ Path, Name string }
	var config struct {
		Ignition struct{ Version string }
		Storage  struct{ Files, Directories, Links []json.RawMessage }
		Systemd  struct{ Units []json.RawMessage }
		Passwd   struct{ Users, Groups []json.RawMessage }
	}
	if json.Unmarshal(text, &config) != nil {
		return c.digest(text)
	}
	list := func(all []json.RawMessage) map[string]any {
		out := map[string]any{}
		for i, one := range all {
			var e entry
			if json.Unmarshal(one, &e) != nil {
				e.Path = fmt.Sprintf("[%d]", i)
			}
			out[c.text(e.Path+e.Name)] = c.digest(one)
		}
		return out
	}
	return map[string]any{
		"all": c.digest(text), "version": c.text(config.Ignition.Version),
		"files": list(config.Storage.Files), "directories": list(config.Storage.Directories), "links": list(config.Storage.Links),
		"units": list(config.Systemd.Units), "users": len(config.Passwd.Users), "groups": len(config.Passwd.Groups),
	}
}
