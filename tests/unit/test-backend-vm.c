/* The pure parts of the vm back end: archive, kernel image, order of modules, QEMU's words. */
#include "unit.h"

#include <stdio.h>

#include "backend/vm.h"
#include "core/cleanup.h"

/* ---- archive ---- */

/* Eight hexadecimal digits of a header's field. */
static unsigned field(const char *header, int index) {
  char digits[9] = {0};
  memcpy(digits, header + 6 + 8 * index, 8);
  return (unsigned)strtoul(digits, NULL, 16);
}

enum { FIELD_MODE = 1, FIELD_SIZE = 6, FIELD_NAME = 11, HEADER_SIZE = 110 };

static size_t padded(size_t size) {
  return (size + 3) / 4 * 4;
}

static void test_archive(void **state) {
  (void)state;
  static const struct {
    const char *name, *data;
    size_t size;
    unsigned mode;
  } entries[] = {{"dev", "", 0, 040755},
                 {"init", "\177ELF\0\1\2", 7, 0100755},
                 {"request", "aecho\0", 6, 0100600},
                 {"a-longer-name.ko.xz", "12345678", 8, 0100644}};
  _cleanup_text_ struct text archive = {0};
  for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
    archive_add(&archive, entries[i].name, entries[i].mode, entries[i].data, entries[i].size);
  archive_finish(&archive);
  assert_int_equal(archive.length % 512, 0);
  size_t at = 0;
  for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
    const char *header = archive.data + at;
    assert_memory_equal(header, "070701", 6);
    assert_int_equal(field(header, FIELD_MODE), entries[i].mode);
    assert_int_equal(field(header, FIELD_SIZE), entries[i].size);
    assert_int_equal(field(header, FIELD_NAME), strlen(entries[i].name) + 1);
    assert_string_equal(header + HEADER_SIZE, entries[i].name);
    at += padded(HEADER_SIZE + strlen(entries[i].name) + 1);
    assert_memory_equal(archive.data + at, entries[i].data, entries[i].size);
    at += padded(entries[i].size);
  }
  assert_string_equal(archive.data + at + HEADER_SIZE, "TRAILER!!!");
}

/* ---- kernel image ---- */

static void test_release_of_bzimage(void **state) {
  (void)state;
  char image[0x1000] = {0};
  memcpy(image + 0x202, "HdrS", 4);
  image[0x20e] = 0x00;
  image[0x20f] = 0x05; /* the text is at 0x200 + 0x500 */
  snprintf(image + 0x700, 64, "6.1.0-44-amd64 (debian) #1 SMP");
  _cleanup_free_ char *release = kernel_release(image, sizeof image);
  assert_string_equal(release, "6.1.0-44-amd64");
  image[0x20f] = 0x7f; /* behind the end */
  assert_null(kernel_release(image, sizeof image));
  assert_null(kernel_release(image, 0x210));
}

static void test_release_of_elf(void **state) {
  (void)state;
  char image[0x1000] = "\177ELF";
  snprintf(image + 0x100, 64, "Linux version %%s (%%s)");
  snprintf(image + 0x200, 64, "Linux version 6.12.0+deb13-amd64 (x@y) #1");
  _cleanup_free_ char *release = kernel_release(image, sizeof image);
  assert_string_equal(release, "6.12.0+deb13-amd64");
  assert_null(kernel_release(image, 0x150));
  assert_null(kernel_release("#!/bin/sh\n", 10));
  assert_null(kernel_release("", 0));
}

/* ---- modules ---- */

static const char dependencies[] = "kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs.ko\n"
                                   "kernel/net/9p/9pnet.ko:\n"
                                   "kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko "
                                   "kernel/drivers/virtio/virtio-ring.ko kernel/virtio.ko\n"
                                   "kernel/drivers/virtio/virtio-ring.ko: kernel/virtio.ko\n"
                                   "kernel/virtio.ko:\n"
                                   "kernel/fs/netfs.ko:\n"
                                   "kernel/fs/not9p.ko:";
static const char builtin[] = "kernel/drivers/virtio/virtio_pci.ko\n";

static size_t position(const struct strv *files, const char *file) {
  for (size_t i = 0; i < files->count; i++) {
    if (strcmp(files->items[i], file) == 0)
      return i;
  }
  fail_msg("%s is missing", file);
  return 0;
}

static void test_order_of_modules(void **state) {
  (void)state;
  static const char *const wanted[] = {"virtio_pci", "9p", "9pnet_virtio", "virtio_ring", NULL};
  _cleanup_strv_ struct strv files = {0};
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(kernel_order_modules(dependencies, builtin, wanted, &files, &error), 0);
  assert_int_equal(files.count, 6);
  size_t net = position(&files, "kernel/net/9p/9pnet.ko");
  size_t ring = position(&files, "kernel/drivers/virtio/virtio-ring.ko");
  assert_true(net < position(&files, "kernel/fs/9p/9p.ko"));
  assert_true(net < position(&files, "kernel/net/9p/9pnet_virtio.ko.xz"));
  assert_true(position(&files, "kernel/virtio.ko") < ring);
  assert_true(ring < position(&files, "kernel/net/9p/9pnet_virtio.ko.xz"));
}

static void test_missing_module(void **state) {
  (void)state;
  static const char *const wanted[] = {"9p", "virtio_console", NULL};
  _cleanup_strv_ struct strv files = {0};
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(kernel_order_modules(dependencies, builtin, wanted, &files, &error), -1);
  assert_non_null(strstr(error.message, "virtio_console"));
  assert_non_null(strstr(error.hint, "vm.kernel"));
}

/* ---- QEMU ---- */

static void test_words(void **state) {
  (void)state;
  static const struct vm_machine machine = {.qemu = "/usr/bin/qemu-system-x86_64",
                                            .kernel = "/k",
                                            .initramfs = "/i",
                                            .console = "/c",
                                            .memory_mb = 768};
  _cleanup_strv_ struct strv words = {0};
  vm_machine_words(&machine, &words);
  assert_string_equal(words.items[0], machine.qemu);
  static const char *const pairs[][2] = {{"-kernel", "/k"},
                                         {"-initrd", "/i"},
                                         {"-m", "768"},
                                         {"-nic", "none"},
                                         {"-serial", "file:/c"}};
  for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
    assert_string_equal(words.items[position(&words, pairs[i][0]) + 1], pairs[i][1]);
}

static void test_words_for_a_network(void **state) {
  (void)state;
  _cleanup_strv_ struct strv published = {0}, publish = {0}, forwards = {0}, words = {0};
  static const char *const texts[] = {"8080:80", "9000", "0.0.0.0:8081:81", "[::1]:8082:82"};
  for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
    strv_add(&published, texts[i]);
  vm_publish(&published, &publish, &forwards);
  static const char *const outside[] = {"127.0.0.1:8080:20000", "127.0.0.1:9000:20001",
                                        "0.0.0.0:8081:20002", "[::1]:8082:20003"};
  assert_int_equal(publish.count, ARRAY_SIZE(outside));
  for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
    assert_string_equal(publish.items[i], outside[i]);
  const struct vm_machine machine = {.qemu = "q",
                                     .kernel = "/k",
                                     .initramfs = "/i",
                                     .console = "/c",
                                     .network = true,
                                     .forwards = &forwards};
  vm_machine_words(&machine, &words);
  assert_string_equal(words.items[position(&words, "-netdev") + 1],
                      "user,id=net,hostfwd=tcp:127.0.0.1:20000-127.0.0.1:80,"
                      "hostfwd=tcp:127.0.0.1:20001-127.0.0.1:9000,"
                      "hostfwd=tcp:127.0.0.1:20002-127.0.0.1:81,"
                      "hostfwd=tcp:127.0.0.1:20003-127.0.0.1:82");
}

static void test_translation(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"HTTP_PROXY=http://127.0.0.1:61080", "HTTP_PROXY=http://10.0.2.2:61080"},
      {"NO_PROXY=localhost,127.0.0.1,::1", "NO_PROXY=localhost,127.0.0.1,::1"},
      {"nameserver 127.0.0.53\nsearch a.test\n", "nameserver 192.0.2.53\nsearch a.test\n"},
      {"", ""}};
  for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
    _cleanup_free_ char *translated = vm_translate(texts[i][0]);
    assert_string_equal(translated, texts[i][1]);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_archive),
    cmocka_unit_test(test_release_of_bzimage),
    cmocka_unit_test(test_release_of_elf),
    cmocka_unit_test(test_order_of_modules),
    cmocka_unit_test(test_missing_module),
    cmocka_unit_test(test_words),
    cmocka_unit_test(test_words_for_a_network),
    cmocka_unit_test(test_translation),
};

UNIT_MAIN(tests)
