# The front door. `make run CMD='...'` and `make test` do everything on a fresh Debian 12 machine.
PREFIX  ?= /usr/local
DESTDIR ?=
BUILD   ?= build
export CMD

.PHONY: all build run test test-long test-vm bench install format format-check clean packages

all: build

packages:
	@tools/install-packages build

$(BUILD)/build.ninja:
	@meson setup $(BUILD) --prefix=$(PREFIX) --sysconfdir=/etc >/dev/null

build: packages $(BUILD)/build.ninja
	@ninja -C $(BUILD) --quiet >&2

# Runs CMD in the sandbox, in this folder; without CMD, a short guided tour.
run: build
	@if [ -n "$$CMD" ]; then exec $(BUILD)/src/cli/sandbox run -c "$$CMD"; \
	else exec tools/demo $(BUILD)/src/cli/sandbox; fi

test:
	@tools/install-packages build test
	@/usr/bin/python3 tools/test

test-long:
	@tools/install-packages build test
	@/usr/bin/python3 tools/test --long

test-vm: build
	@tools/install-packages test vm
	@tools/test-vm

bench: build
	@tools/install-packages bench
	@bench/startup $(BUILD)/src/cli/sandbox
	@bench/exec $(BUILD)/src/cli/sandbox
	@bench/net $(BUILD)/src/cli/sandbox
	@bench/gate $(BUILD)

install: build
	@meson configure $(BUILD) -Dprefix=$(PREFIX) -Dsysconfdir=/etc >/dev/null
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --quiet

format:
	@tools/install-packages test
	@git ls-files '*.c' '*.h' | xargs clang-format -i

format-check:
	@git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

clean:
	@rm -rf $(BUILD) build-*
