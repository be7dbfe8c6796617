# build    bin/pivot and bin/pivotctl, static binaries
# test     everything: checks, unit tests, real ostree and registry, boots in QEMU
# unit     the fast tests only
# nightly  what is too long for each change: fuzzing, releases of the guest, more of SELinux and architectures, and the sweep
# sweep    every crash: all pairs, each system call, 1,400 power cuts; hours
# check    gofmt, go vet, staticcheck
# fuzz     each fuzz target for FUZZTIME
# demo     a whole first boot in QEMU, told as it happens
# bench    the import beside podman and skopeo, as root; docs/benchmark.md. BENCH="-size 150MB -files 4000" for less
# reference  what ostree-ext makes of the tests' derived images, recorded anew; test/oscontainer/reference/derived.sh
# install  binary, systemd units, dracut module, SELinux module, manual pages and completions to $(DESTDIR)$(PREFIX)

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.PHONY: build completions test unit nightly sweep check fuzz demo bench reference install clean deps

BIN    ?= bin
PREFIX ?= /usr
UNITS   = $(DESTDIR)$(PREFIX)/lib/systemd/system
DRACUT  = $(DESTDIR)$(PREFIX)/lib/dracut/modules.d
SHARE   = $(DESTDIR)$(PREFIX)/share
POLICY  = $(DESTDIR)$(PREFIX)/share/selinux/packages

# The image library's parts that need C libraries (gpgme, devicemapper, ostree,
# btrfs) or that pivot has no use for (a Docker daemon, containers-storage).
TAGS := containers_image_openpgp,containers_image_docker_daemon_stub,containers_image_storage_stub,containers_image_ostree_stub,exclude_graphdriver_btrfs

# By the environment, so that build, vet, staticcheck and tests see the same
# code. The version below stands for Go's own VCS stamp, which fails to build
# where git distrusts the checkout's owner.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -tags=% -buildvcs=%,$(shell go env GOFLAGS)) -tags=$(TAGS) -buildvcs=false
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo 0-unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)

build: completions
	go build -trimpath -ldflags "-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)" -o $(BIN)/ ./cmd/pivot ./cmd/pivotctl

# This runs here, whatever the programs are built for.
completions:
	GOOS= GOARCH= go run ./test/tools/completions $(BIN)/completions

# The packages that boot machines come first, as they take longest; the others run
# beside them, one at a time. What hangs in a machine is found by what it does (Limits
# in test/vm), so that a busy host may take its time.
BOOTS = ./test/e2e ./test/vm
GOTEST = go test -json -vet=off -count 1

# What "make nightly" runs in place of "make test".
NIGHTLY = ^(TestToNewerRelease|TestOnNewerRelease|TestSELinuxWhole|TestComposefs|TestArchitecturesWhole)$$

test: deps check
	@mkdir -p $(BIN) && go build -o $(BIN)/summary ./test/tools/summary
	@TMPDIR=$$(go run ./test/tools/tmpdir) $(GOTEST) -timeout 3h -p 2 -skip '$(NIGHTLY)' $(BOOTS) ./... | $(BIN)/summary

unit:
	TMPDIR=$$(go run ./test/tools/tmpdir) go test -short ./...

nightly: FUZZTIME = 30s
nightly: deps fuzz
	@mkdir -p $(BIN) && go build -o $(BIN)/summary ./test/tools/summary
	@$(GOTEST) -timeout 6h -p 1 -run '$(NIGHTLY)' ./test/rules ./test/e2e | $(BIN)/summary
	@$(MAKE) sweep

# At the end one line for each part says what it went through.
sweep: deps
	@mkdir -p $(BIN)
	@rc=0; PIVOT_SWEEP=long go test -v -count 1 -p 1 -timeout 48h -run 'TestSweep|TestKills|TestTerminate|TestFirstBoot/power' \
	  ./test/crash ./test/syskill ./test/e2e | grep -vE '^ *(=== |\| |e2e_test.go:[0-9]+: \|)' | tee $(BIN)/sweep.log || rc=$$?; \
	  sed -n 's/.*_test.go:[0-9]*: swept /swept /p' $(BIN)/sweep.log; exit $$rc

check:
	@echo "gofmt, go vet, staticcheck"
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "gofmt -w is wanted for:" $$bad; exit 1; }
	@go vet ./...
	@go tool staticcheck ./...

# Go fuzzes one target at a time. A failing input is kept below testdata/fuzz of
# its package, and go test runs it from then on.
FUZZTIME ?= 10s
fuzz:
	@echo "fuzzing, $(FUZZTIME) each"
	@for file in $$(grep -rl --include='*_test.go' --exclude-dir=.cache '^func Fuzz' . | sort); do \
	   for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' $$file); do \
	     out=$$(go test -vet=off -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$(dirname $$file) 2>&1) || \
	       { echo "$$target: $$out"; exit 1; }; \
	   done; done

demo: deps
	@go run ./test/demo

bench: deps build
	@go run ./test/bench -pivot $(BIN)/pivot $(BENCH)

reference:
	@test/oscontainer/reference/derived.sh

deps:
	@test/tools/deps.sh

# The link enables the unit on images that apply no presets to vendor units.
install: build
	install -D -m 0755 $(BIN)/pivot $(DESTDIR)$(PREFIX)/bin/pivot
	install -D -m 0644 systemd-units/80-pivot.preset $(UNITS)-preset/80-pivot.preset
	cd systemd-units && for unit in *.service */*.conf; do install -D -m 0644 $$unit $(UNITS)/$$unit; done
	sed -i 's|/usr/bin/pivot|$(PREFIX)/bin/pivot|' $(UNITS)/pivot-firstboot.service
	cd dracut/90pivot && for file in *; do install -D -m 0644 $$file $(DRACUT)/90pivot/$$file; done
	chmod 0755 $(DRACUT)/90pivot/module-setup.sh
	sed -i 's|/usr/bin/pivot|$(PREFIX)/bin/pivot|' $(DRACUT)/90pivot/*
	install -D -m 0644 internal/selinux/pivot.cil $(POLICY)/pivot.cil
	sed -i 's|/usr/bin/pivot|$(PREFIX)/bin/pivot|' $(POLICY)/pivot.cil
	install -d $(UNITS)/multi-user.target.wants
	ln -sfn ../pivot-firstboot.service $(UNITS)/multi-user.target.wants/pivot-firstboot.service
	cd man && for page in *.[1-8]; do install -D -m 0644 $$page $(SHARE)/man/man$${page##*.}/$$page; done
	install -D -m 0644 systemd-units/pivot.catalog $(UNITS)/../catalog/pivot.catalog
	ln -sfn pivot-firstboot.service.8 $(SHARE)/man/man8/pivot-initramfs.service.8
	install -D -m 0644 -t $(SHARE)/bash-completion/completions $(BIN)/completions/bash/*
	install -D -m 0644 -t $(SHARE)/zsh/site-functions $(BIN)/completions/zsh/*
	install -D -m 0644 -t $(SHARE)/fish/vendor_completions.d $(BIN)/completions/fish/*

# ostree marks deployment roots immutable.
clean:
	chattr -R -f -i .cache || true
	rm -rf $(BIN) .cache
