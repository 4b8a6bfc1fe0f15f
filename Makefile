# A thin front: Meson does the work. See README.md for the two commands that
# a newcomer needs, docs/development.md for the rest.
BUILD ?= build
.PHONY: all build
all: build

$(BUILD)/build.ninja:
	meson setup $(BUILD)

build: $(BUILD)/build.ninja
	ninja -C $(BUILD)
