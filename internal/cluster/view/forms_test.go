package view_test

import (
	"fmt"
	"strings"
	"testing"
)

// marker is the secret in each form.
const marker = "Zq7Wm3Kx9Rt5"

// secretForms are the forms in which docs/cluster-view.md says that no secret is in an archive, each with the marker.
func secretForms() map[string][]string {
	const long = "AAAAB3NzaC1yc2EAAAADAQABAAABgQ"
	return map[string][]string{
		"credentials in URLs": {
			"https://user:MARK@r.example/x", "https://:MARK@r.example", "http://MARK@r.example/x", "docker://u:MARK@r.example/os:1",
			"https://u:p@MARK@r.example/x", "(https://u:MARK@r.example)", `{"url":"ftp://u:MARK@r.example"}`, `{"url":"http:\/\/u:MARK@r.example\/x"}`, "HTTPS://u:MARK@[::1]:5000/x",
		},
		"values of queries in URLs": {
			"https://b.example/o?sig=MARK", "https://b.example/o?a=b&X-Amz-Signature=MARK", "https://b.example/o?a=b&amp;sig=MARK",
			`https://b.example/o?a=b\u0026sig=MARK`, "https://b.example/#access_token=MARK", "https://b.example/o?a[b]=MARK", "/o?a%5B=MARK",
		},
		"data URLs": {"data:,MARK", "data:;base64,MARK", "data:text/plain;charset=utf-8,MARK", "DATA:,MARK", `data:text/plain;charset="utf-8",MARK`, `"source":"data:,MARK"`},
		"private keys": {
			"-----BEGIN RSA PRIVATE KEY-----\nMARK\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nMARK\n-----END PRIVATE KEY-----",
			"-----BEGIN EC PRIVATE KEY-----\nMARK", "-----BEGIN OPENSSH PRIVATE KEY-----\nMARK\n", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMARK\n",
			`-----BEGIN PRIVATE KEY-----\nMARK\n-----END PRIVATE KEY-----`, "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nMARK\n-----END PGP PRIVATE KEY BLOCK-----",
			"LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpMARK=", "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nMARK\nPrivate-MAC: 00ff", "AGE-SECRET-KEY-1MARKUP",
			"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nMARK\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
		},
		"SSH keys": {
			"ssh-rsa " + long + "MARK me", "ssh-ed25519 " + long + "MARK", "ecdsa-sha2-nistp256 " + long + "MARK=", "sk-ssh-ed25519@openssh.com " + long + "MARK",
			"ssh-ed25519-cert-v01@openssh.com " + long + "MARK", "ssh-rsa\t" + long + "MARK", "ssh-rsa  " + long + "MARK", long + "MARK",
		},
		"hashes of passwords": {
			"$1$salt$MARK", "$5$salt$MARK", "$6$rounds=5000$salt$MARK", "$y$j9T$salt$MARK", "$2b$12$MARK", "$apr1$salt$MARK", "$argon2id$v=19$m=65536,t=3$salt$MARK",
			"$md5,rounds=900$salt$MARK", "$pbkdf2-sha256$29000$salt$MARK", "$P$BMARK", "root:$gy$j9T$salt$MARK:19000:", "grub.pbkdf2.sha512.10000.AB.MARK",
			"{SSHA}MARK", "{PBKDF2_SHA256}MARK", "{CRYPT}$6$s$MARK", "root:aMARK:19000:0:",
		},
		"JSON web tokens": {"eyJhbGciOiJSUzI1NiJ9.MARK.c2ln", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.MARK", "eyJhbGciOiJSUzI1NiJ9..MARK", "eyJhbGciOiJSUzI1NiJ9.a.b.c.MARK"},
		"Bearer and Basic": {
			"Bearer MARK", "bearer MARK", "BEARER  MARK", "Basic MARK", "basic\tMARK", "Bearer: MARK", "Authorization: token MARK", "Authorization: Digest response=x, nonce=MARK",
			"Proxy-Authorization: Basic MARK", "Cookie: session=MARK", "Set-Cookie: sid=MARK; Path=/", `{"Authorization":["Bearer MARK"]}`, `-H "Authorization: ApiKey MARK"`, `{\"authorization\":\"Negotiate MARK\"}`,
		},
		"values of names": {
			"password=MARK", "passwd: MARK", `"password":"MARK"`, "password: 'a MARK'", `PASSWORD="a MARK"`, "db_password=MARK", "password => MARK", "password := MARK",
			"--password MARK", "--password=MARK", "--registry-token 'MARK'", "password=a,MARK", "password=a;MARK", `"passwords":["MARK"]`, `"password": "a\"MARK"`,
			`{\"password\":\"MARK\"}`, `{\\\"password\\\":\\\"MARK\\\"}`, "password=`MARK`", "login me password MARK", "<password>MARK</password>", `<a:Password x="1">MARK</a:Password>`,
			"password: |\n  MARK\n", "password: >-\n  a\n  MARK\n", `"name":"DB_PASSWORD","value":"MARK"`, "name: TOKEN, value: MARK", "passphrase=MARK", "pwd=MARK", "psk=MARK",
			"password: \"a\n  MARK\"\n", "password:\n  MARK\n", "passwords:\n- MARK\n", "password: &a MARK", "password: !!str MARK", "password=$(echo MARK)", "tokens: {a: MARK}", `password=a\ MARK`, `password="""a"MARK"""`,
			`["--password","MARK"]`, `'--token', 'MARK'`, "password->MARK", `<string name="password">MARK</string>`,
			"client_secret=MARK", "clientSecret: MARK", "access_token=MARK", "token=MARK", "api-key: MARK", "apikey=MARK", "API_KEY=MARK", "private_key=MARK",
			"PrivateKey = MARK", "ssh_key=MARK", "encryptionKey: MARK", "credentials=MARK", `"auth":"MARK"`, "rd.iscsi.password=MARK", `"token": 1MARK`,
		},
	}
}

// TestForms: no secret of a listed form is in an archive, in logs and in objects, and what is none stays.
func TestForms(t *testing.T) {
	s, log, all := secretive(t), "", 0
	s[events] = []any{}
	for kind, forms := range secretForms() {
		for i, form := range forms {
			all++
			planted := strings.ReplaceAll(form, "MARK", marker)
			log += "before\n" + planted + "\nafter\n"
			e := object(t, `{"metadata":{"name":"e"},"reason":"UpdateFailed","involvedObject":{"name":"n1"}}`)
			e["metadata"].(map[string]any)["name"] = fmt.Sprintf("%s %d", kind, i)
			e["message"] = "cannot do it: " + planted
			s[events] = append(s[events].([]any), e)
		}
	}
	const kept = `pull docker://r.example:5000/os@sha256:00 of node n1 (key: node-role.kubernetes.io/master) drained 3 of 5 pods at 10.0.0.1:6443, cost $5 and $6`
	s["/api/v1/namespaces/pivot-agent/pods/pivot-agent-x/log"] = kept + "\n" + log
	o := object(t, `{"metadata":{"name":"worker"},"spec":{"tokens":["`+marker+`"],"password":1,"parameters":[{"name":"apiToken","value":"`+marker+`"}],"automountServiceAccountToken":false}}`)
	s[pools] = []any{o}
	files := gathered(t, s)
	for line := range strings.Lines(files["logs/pivot-agent/pivot-agent-x.agent.log"] + files["objects/events-of-nodes.json"] + files["objects/pools.json"]) {
		if strings.Contains(line, marker) {
			t.Errorf("left: %s", line)
		}
	}
	if !strings.Contains(files["logs/pivot-agent/pivot-agent-x.agent.log"], kept+"\n") {
		t.Errorf("lost: %s", kept)
	}
	if !strings.Contains(files["objects/pools.json"], `"automountServiceAccountToken": false`) || strings.Contains(files["objects/pools.json"], `"password": 1`) {
		t.Errorf("%s", files["objects/pools.json"])
	}
	if all < 69 {
		t.Errorf("%d forms", all)
	}
}
