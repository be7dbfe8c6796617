# build    bin/pivot, bin/pivotctl, bin/pivot-agent and bin/pivot-fleet, static binaries; bin/man; bin/completions
# build-host  only bin/pivot and bin/pivotctl: a machine needs no others, and they compile in half the time
# test     what each change needs: checks and all tests, with real ostree, a registry, and boots in QEMU for what only a boot can show
# unit     the fast tests only
# nightly  what takes too long for each change: fuzzing, more first boots, guest releases, SELinux cases and architectures, packages, and the sweep
# sweep    all crashes: all pairs, each system call, 2,900 power cuts; takes hours
# check    gofmt, go vet, staticcheck, and the lines of each part of the product: docs/dev/size.md
# words    the words of the documents, and the patterns in all texts that are hard to read; test/tools/words/ceilings limits them
# fuzz     each fuzz target for FUZZTIME
# mutants  small changes in the code, each of which a test should notice; docs/dev/testing.md. MUTANTS="-n 25 -seed 7 ./kargs" for others
# test-host  first boots on a real system: IMAGE is its disk or a directory with its files, OSIMAGE the image to pivot to; docs/dev/testing.md
# demo     complete first boots and changes of machines in boxes, shown as they happen, as root; docs/dev/testing.md
# demo-vm  a complete first boot in QEMU, shown as it happens
# demo-enter  a first boot in QEMU without a reboot, shown as it happens
# cluster-demo  a control plane and two machines in QEMU as its nodes: rollouts and their way back, shown as they happen
# bench    the import compared with podman and skopeo, as root; docs/dev/benchmark.md. BENCH="-size 150MB -files 4000" for a smaller image
# bench-check  the same for a smaller image, as root; fails if processor time or memory relative to the others is more than recorded
# bench-boot   whole first boots in QEMU, by pivot and as the machine-config-daemon does them, as root; docs/dev/benchmark.md. BENCH="-rounds 1 -tool 20MB" for fewer and smaller ones
# controlplane  the Kubernetes control plane of the tests, built once into the cache; "make test" does it
# reference  record again what ostree-ext makes from the tests' derived images; test/worlds/oscontainer/reference/derived.sh
# install  the result of "make build", with units, dracut module, SELinux module, manual pages, catalog and completions, below $(DESTDIR)
# install-host  only the host's program, units, dracut module and SELinux module
# install-agent  only the node agent, with its unit; docs/cluster.md
# image    a container image with what "make install" installs, but for the node agent: the OCI layout $(BIN)/image; docs/recipes/container.md
# agent-image  a container image with the node agent and nothing else: the OCI layout $(BIN)/agent-image; docs/cluster.md
# fleet-image  the same with the controllers of a fleet: $(BIN)/fleet-image
# install-yaml  $(BIN)/install.yaml, for kubectl apply -f, with the images of $(REGISTRY) by their digests; and a Helm chart; docs/cluster.md
# dist     $(DIST)/pivot-VERSION.tar.gz: the last commit, the vendored modules, and the packages' metadata
# deb      Debian packages from that archive, in $(DIST)
# rpm      packages for Fedora and related distributions, likewise
# release  all files of the last commit's tag in $(DIST)/release: archive, packages, images, modules, checksums; packaging/README.md
# clean    removes what was built in this directory
# help     this list

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.PHONY: build build-host completions manpages help test unit nightly sweep check words fuzz mutants demo demo-vm demo-enter cluster-demo test-host bench bench-check bench-boot reference install install-host install-agent image agent-image fleet-image install-yaml dist deb rpm release clean deps controlplane
.NOTPARALLEL: # "make build install" must run in this order

BIN       ?= bin
DIST      ?= $(BIN)
PREFIX    ?= /usr
UNITDIR   ?= $(PREFIX)/lib/systemd/system
PRESETDIR ?= $(PREFIX)/lib/systemd/system-preset
DRACUTDIR ?= $(PREFIX)/lib/dracut/modules.d
CATALOGDIR ?= $(PREFIX)/lib/systemd/catalog
SHARE      = $(DESTDIR)$(PREFIX)/share
POLICYDIR ?= $(PREFIX)/share/selinux/packages

# These tags leave out the parts of the image library that need C libraries (gpgme,
# devicemapper, ostree, btrfs) or that pivot does not use (Docker daemon, containers-storage).
TAGS := containers_image_openpgp,containers_image_docker_daemon_stub,containers_image_storage_stub,containers_image_ostree_stub,exclude_graphdriver_btrfs

# Set in the environment, so that build, vet, staticcheck and tests see the same
# code. The version below replaces Go's VCS stamp, with which the build fails if
# git does not trust the checkout's owner. With -trimpath the programs are
# reproducible, and programs, tests and other checkouts share Go's build cache.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -tags=% -buildvcs=% -trimpath,$(shell go env GOFLAGS)) -tags=$(TAGS) -buildvcs=false -trimpath
VERSION ?= $(shell packaging/version.sh)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)

# Functions begin at multiples of 16 bytes, as on arm64. The default of amd64 is 32, and makes pivot 0.15 MiB larger.
COMPILE = go build -ldflags "-s -w -funcalign=16 -X main.version=$(VERSION) -X main.commit=$(COMMIT)" -o $(BIN)/
build: completions manpages
	$(COMPILE) ./cmd/pivot ./cmd/pivotctl ./cmd/pivot-agent ./cmd/pivot-fleet

build-host:
	$(COMPILE) ./cmd/pivot ./cmd/pivotctl

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

# These run on the build host, regardless of the programs' platform.
completions:
	GOOS= GOARCH= go run ./test/tools/completions $(BIN)/completions

manpages:
	GOOS= GOARCH= go run ./test/tools/manpages man $(BIN)/man $(VERSION)

# The packages that take longest come first, so that none of them runs alone at the end. Four run at a
# time, because many tests wait. Hanging machines are detected by what they do (Limits in test/worlds/vm),
# so a busy host may be slow.
FIRST = ./test/suites/e2e ./test/worlds/crash ./internal/osimage ./test/suites/stories ./test/suites/syskill ./internal/cluster/rollout ./cmd/pivot ./test/tools/bench ./rpmostree

# Prints each package and each test of five seconds or more as it ends, each failed test with its output, and the counts.
# The result is that of go test. $(BIN)/tests.json has the durations; docs/dev/testing.md.
# GOGC saves the compiler and the linker an eighth of their processor time; NEUTRAL takes it from the tests, with what
# else the host has set.
NEUTRAL = -exec $(CURDIR)/test/tools/neutral.sh
GOTEST = mkdir -p $(BIN); GOGC=400 go tool gotestsum --format testname --jsonfile-timing-events $(BIN)/tests.json -- -vet=off -count 1 $(NEUTRAL)
LONGER = grep --line-buffered -vE '^(EMPTY .*|PASS .* \([0-4]\.[0-9]+s\))$$'

# The tests that "make nightly" runs and "make test" skips. This is the only list of them.
NIGHTLY = ^(TestAttacks|TestEarlyFirstBoot|TestFirstBootWhole|TestSELinuxWhole|TestBoxedWhole|TestOlderSELinuxLabels|TestToNewerRelease|TestOnNewerRelease|TestNewestRelease|TestComposefs|TestEntering|TestCutEntering|TestVerity|TestDay2|TestNode|TestRealNodes|TestFleetGuests|TestClusterDemo|TestEnds|TestArchitecturesWhole|TestDashboardTypes|TestShortWithRivals|TestLargeFile|TestNamesJustBelowTheLimitWhole|TestManyLayers|TestBroken|TestHost|TestPackages|TestReproducible|TestFigures|TestFleetFaults|TestHelm|TestOperatorsSchemas|TestRebootAndPowerOff|TestThousandMachines|TestGRUB|TestKernelsWithSecureBoot|TestOtherProcessor|TestMissingDrivers|TestStorageOfRoot|TestOldXFS|TestWholeFirstBoots|TestPowerCutsOfImports|TestSigned|TestSignedBoot|TestRealBootc|TestBoxOfOtherReleases|TestWatchdog)$$

test: deps controlplane check
	@export TMPDIR=$$(go run ./test/tools/tmpdir); $(GOTEST) -timeout 3h -p 4 -skip '$(NIGHTLY)' $(FIRST) ./... | $(LONGER)

# Without vet, which "make check" runs, and with three times as many packages at a time as there are processors,
# because some tests wait. The longest come first. GOGC: as above. Seven packages have no short tests, and some of them take long to link.
LONG = ./internal/osimage ./test/suites/stories ./rpmostree ./cmd/pivot ./internal/ostree
unit:
	TMPDIR=$$(go run ./test/tools/tmpdir) GOGC=400 go test $(NEUTRAL) -short -skip '$(NIGHTLY)' -vet=off -p $$((3 * $$(nproc))) $(LONG) $$(go list ./... | grep -vE '/test/suites/(agent|booted|e2e|syskill)$$|/internal/cluster/(hostpivot|kube)$$')

nightly: FUZZTIME = 30s
nightly: deps fuzz
	@$(GOTEST) -timeout 6h -p 1 -run '$(NIGHTLY)' ./internal/osimage ./cmd/pivot ./test/suites/rules ./test/suites/packaging ./test/suites/agent ./test/suites/fleet ./internal/guard ./cmd/pivot-agent ./internal/cluster/admission ./internal/cluster/configserver ./internal/cluster/render ./internal/cluster/rollout ./test/worlds/vm ./test/box ./test/worlds/scaleup ./test/suites/e2e ./test/tools/clusterdemo ./test/tools/installyaml ./test/tools/bootbench ./test/tools/bench | $(LONGER)
	@$(MAKE) mutants
	@$(MAKE) sweep

# At the end it prints one line for each part with what was tried.
sweep: deps
	@mkdir -p $(BIN)
	@rc=0; PIVOT_SWEEP=long test/tools/neutral.sh go test -v -count 1 -p 1 -timeout 48h -run 'TestSweep|TestKills|TestTerminate|TestPackagesKilled|TestUsersAttack|TestStories|Test(EarlyFirstBoot|Boxed|BoxedWhole)$$/power_cuts' \
	  ./test/worlds/crash ./test/suites/syskill ./test/suites/stories ./internal/cluster/node ./internal/cluster/rollout ./test/suites/e2e | grep -vE '^ *(=== |\| |e2e_test.go:[0-9]+: \|)' | tee $(BIN)/sweep.log || rc=$$?; \
	  sed -n 's/.*_test.go:[0-9]*: swept /swept /p' $(BIN)/sweep.log; exit $$rc

check:
	@echo "gofmt, go vet, staticcheck"
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "gofmt -w is wanted for:" $$bad; exit 1; }
	@go vet ./...
	@go tool staticcheck ./...
	@go run ./test/tools/size

words:
	@go run ./test/tools/words

# Go can fuzz only one target at a time. It saves a failing input below testdata/fuzz of
# the package, and go test uses it from then on.
FUZZTIME ?= 10s
fuzz:
	@echo "fuzzing, $(FUZZTIME) each"
	@for file in $$(grep -rl --include='*_test.go' --exclude-dir=.cache '^func Fuzz' . | sort); do \
	   for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' $$file); do \
	     out=$$(test/tools/neutral.sh go test -vet=off -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$(dirname $$file) 2>&1) || \
	       { echo "$$target: $$out"; exit 1; }; \
	   done; done

# The second list is of the tests of other packages that judge a change which its own package's tests do not notice.
CORE = ./kargs ./pivot ./rpmostree ./day2/... ./internal/hostfiles ./internal/pinning ./internal/pods ./internal/projection \
  ./internal/ostree ./internal/osimage/layer ./internal/cluster/node ./internal/cluster/rollout ./internal/cluster/admission
JUDGES = ./test/worlds/crash ./internal/osimage ./cmd/pivot ./test/suites/fleet ./test/suites/stories
MUTANTS ?= -n 10 -seed $(shell date -u +%Y%m%d) $(CORE)
mutants: deps controlplane
	@export TMPDIR=$$(go run ./test/tools/tmpdir); test/tools/neutral.sh go run ./test/tools/mutants -suites "$(JUDGES)" $(MUTANTS)

# What comes before the demonstration itself is timed here, and printed by it.
demo:
	@t0=$$(date +%s); test/tools/deps.sh demo; \
	t1=$$(date +%s); go list -deps ./test/tools/demo ./test/box/enter ./cmd/pivot ./cmd/pivotctl >/dev/null; \
	t2=$$(date +%s); go build -o $(BIN)/demo ./test/tools/demo; \
	t3=$$(date +%s); $(BIN)/demo -before "installing=$$((t1 - t0)),downloading modules=$$((t2 - t1)),compiling the demonstration=$$((t3 - t2))"

demo-vm: deps
	@go run ./test/tools/demo vm

demo-enter: deps
	@go run ./test/tools/demo enter

cluster-demo: deps
	@go run ./test/tools/clusterdemo

# This needs only QEMU, and skopeo for OSIMAGE, but not the other dependencies of the tests.
test-host: build
	@[ -n "$(IMAGE)" ] || { echo "IMAGE is wanted: make test-host IMAGE=DISK|DIRECTORY [OSIMAGE=docker://HOST/NAME:TAG] [HOSTTEST='-console']" >&2; exit 1; }
	@go run ./test/tools/hosttest -programs $(BIN) -image "$(IMAGE)" -os-image "$(OSIMAGE)" $(HOSTTEST)

bench: deps build
	@go run ./test/tools/bench -pivot $(BIN)/pivot $(BENCH)

# Ratios of wall times are not compared: they depend on what else the machine does.
bench-check: deps build
	@go run ./test/tools/bench -pivot $(BIN)/pivot -size 300MB -files 6000 -rounds 3 -only base -check test/tools/bench/ratios.json $(BENCH)

# The guest has its own build of pivot: bootlab.Install.
bench-boot: deps
	@go run ./test/tools/bootbench $(BENCH)

reference:
	@test/worlds/oscontainer/reference/derived.sh

deps:
	@test/tools/deps.sh

# The nested module test/controlplane takes eight minutes of processor time to compile. The tests that need it
# would build it themselves, but then the first of them would seem to hang.
controlplane:
	@go run ./test/tools/controlplane

# The installer must enable the units of systemd-units/80-pivot.preset, the only list of them: on a
# running machine by "systemctl preset" with their names, in an image build by the same with --root.
# This target must not install the links, because "systemctl disable" could not remove them.
install: install-host install-agent $(BIN)/pivotctl $(BIN)/pivot-fleet
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/pivotctl $(BIN)/pivot-fleet
	for page in $(BIN)/man/*.[1-8]; do install -D -m 0644 -t $(SHARE)/man/man$${page##*.} $$page; done
	install -D -m 0644 -t $(DESTDIR)$(CATALOGDIR) systemd-units/pivot.catalog
	ln -sfn pivot-firstboot.service.8 $(SHARE)/man/man8/pivot-initramfs.service.8
	install -D -m 0644 -t $(SHARE)/pivot/schema docs/schema/*.json
	install -D -m 0644 -t $(SHARE)/bash-completion/completions $(BIN)/completions/bash/*
	install -D -m 0644 -t $(SHARE)/zsh/site-functions $(BIN)/completions/zsh/*
	install -D -m 0644 -t $(SHARE)/fish/vendor_completions.d $(BIN)/completions/fish/*

install-host: $(BIN)/pivot
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/pivot
	install -D -m 0644 -t $(DESTDIR)$(PRESETDIR) systemd-units/80-pivot.preset
	for unit in $$(cd systemd-units && echo *.service *.path *.timer */*.conf); do install -D -m 0644 systemd-units/$$unit $(DESTDIR)$(UNITDIR)/$$unit; done
	install -D -m 0644 -t $(DESTDIR)$(DRACUTDIR)/90pivot dracut/90pivot/*
	chmod 0755 $(DESTDIR)$(DRACUTDIR)/90pivot/module-setup.sh
	install -D -m 0644 -t $(DESTDIR)$(POLICYDIR) internal/sepolicy/pivot.cil
	sed -i 's|/usr/bin/pivot|$(PREFIX)/bin/pivot|' $(DESTDIR)$(UNITDIR)/pivot-*.service \
	  $(DESTDIR)$(DRACUTDIR)/90pivot/* $(DESTDIR)$(POLICYDIR)/pivot.cil

# The unit is not in the preset: a node may have the agent as a pod, or none.
install-agent: $(BIN)/pivot-agent
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/pivot-agent
	install -D -m 0644 -t $(DESTDIR)$(UNITDIR) deploy/host/pivot-agent.service
	sed -i 's|/usr/bin/pivot|$(PREFIX)/bin/pivot|g' $(DESTDIR)$(UNITDIR)/pivot-agent.service

$(BIN)/pivot $(BIN)/pivotctl $(BIN)/pivot-agent $(BIN)/pivot-fleet:
	@echo 'cannot install $@: run "make build" first' >&2; exit 1

# Writes an image with the files below $$tree.
OCIIMAGE = epoch=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}; arch=$$(go env GOARCH); \
	GOOS= GOARCH= go run ./test/tools/ociimage -arch $$arch -version "$(VERSION)" -revision "$(COMMIT)" -epoch $$epoch

image: $(BIN)/pivot $(BIN)/pivotctl $(BIN)/pivot-fleet
	@tree=$$(mktemp -d); trap "rm -rf $$tree" EXIT; \
	$(MAKE) -s install DESTDIR=$$tree; \
	for other in pivot-agent pivot-fleet; do packaging/files.sh $$other $$tree | sed "s|^|$$tree|" | xargs -r rm; done; \
	$(OCIIMAGE) -title pivot -program /usr/bin/pivot $$tree $(BIN)/image

agent-image fleet-image: %-image: $(BIN)/pivot-%
	@tree=$$(mktemp -d); trap "rm -rf $$tree" EXIT; \
	install -D -m 0755 -t $$tree/usr/bin $(BIN)/pivot-$*; \
	$(OCIIMAGE) -title pivot-$* -program /usr/bin/pivot-$* $$tree $(BIN)/$@

# The images as "make agent-image fleet-image" has built them, or others, such as for several architectures.
digest = $(shell sed -n 's/.*"digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' $(BIN)/$(1)/index.json 2>/dev/null)
AGENT_IMAGE ?= $(REGISTRY)/pivot-agent@$(call digest,agent-image)
FLEET_IMAGE ?= $(REGISTRY)/pivot-fleet@$(call digest,fleet-image)
install-yaml:
	@GOOS= GOARCH= go run ./test/tools/installyaml -agent "$(AGENT_IMAGE)" -fleet "$(FLEET_IMAGE)" -version "$(VERSION)" -out $(BIN)

ARCHIVE = $(DIST)/pivot-$(VERSION:.dirty=).tar.gz

dist:
	@mkdir -p $(DIST)
	@git diff --quiet HEAD -- || echo "dist: what is not committed is left out" >&2
	@packaging/dist.sh $(ARCHIVE) $(VERSION:.dirty=)
	@echo $(ARCHIVE)

# -d, because Go may be installed without a package.
deb: dist
	@work=$$(mktemp -d); trap "rm -rf $$work" EXIT; \
	tar -x -C $$work -f $(ARCHIVE); \
	(cd $$work/* && GOCACHE=$$(go env GOCACHE) dpkg-buildpackage -b -d -uc -us >$$work/log 2>&1) || { cat $$work/log; exit 1; }; \
	mv $$work/*.deb $(DIST)

# Fedora has these definitions for all packages; they make the build reproducible.
RPMBUILD = rpmbuild -tb --nodeps --define 'source_date_epoch_from_changelog 1' \
  --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' --define '_buildhost localhost'
rpm: dist
	@work=$$(mktemp -d); trap "rm -rf $$work" EXIT; \
	$(RPMBUILD) --define "_topdir $$work" $(ARCHIVE) >$$work/log 2>&1 || { cat $$work/log; exit 1; }; \
	mv $$work/RPMS/*/*.rpm $(DIST)

release: deps
	@packaging/release.sh $(abspath $(DIST))/release $(VERSION)

# ostree marks deployment roots immutable.
clean:
	chattr -R -f -i .cache || true
	rm -rf $(BIN) .cache
