package hostfiles_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
)

// TestShortShadowLines: a line with fewer fields than shadow(5) defines does not affect the
// lines around it.
func TestShortShadowLines(t *testing.T) {
	const before = "root:*:1::::::\nshort:*:19000\nbare:!x\nlast:*:1::::::"
	for user, want := range map[string]string{
		"short": "root:*:1::::::\nshort:$y$new:DAY\nbare:!x\nlast:*:1::::::",
		"last":  "root:*:1::::::\nshort:*:19000\nbare:!x\nlast:$y$new:DAY::::::\n",
	} {
		root := t.TempDir()
		shadow := filepath.Join(root, "etc/shadow")
		if err := os.Mkdir(filepath.Dir(shadow), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(shadow, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, ok, err := hostfiles.LineOfPassword(root, hostfiles.PasswordPath("bare")); !ok || err != nil || string(f.Content) != "!x" {
			t.Errorf("the password of bare is %q, %v, %v", f.Content, ok, err)
		}
		password := hostfiles.NewPassword(user, "$y$new")
		if err := hostfiles.SetPassword(t.Context(), hostfiles.OS{}, root, password.Path, shadow+".new", &password); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(shadow)
		if err != nil {
			t.Fatal(err)
		}
		if got := withoutDay(string(got), user); got != want {
			t.Errorf("%s: %q, want %q", user, got, want)
		}
	}
}

// withoutDay replaces the date of a user's password, in days since 1970, by DAY.
func withoutDay(shadow, user string) string {
	head, rest, _ := strings.Cut(shadow, user+":$y$new:")
	return head + user + ":$y$new:DAY" + strings.TrimLeft(rest, "0123456789")
}
