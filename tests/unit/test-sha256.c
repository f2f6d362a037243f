/* SHA-256 against the vectors of FIPS 180-4 and its own streaming; and the arena. */
#include "unit.h"

#include "core/arena.h"
#include "core/cleanup.h"
#include "core/sha256.h"

static void test_sha256_vectors(void **state) {
  (void)state;
  static const struct {
    const char *text, *hex;
  } rows[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
       "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    char hex[SHA256_HEX_SIZE];
    sha256_hex(rows[i].text, strlen(rows[i].text), hex);
    assert_string_equal(hex, rows[i].hex);
  }
}

static void test_sha256_million(void **state) {
  (void)state;
  struct sha256 hash;
  sha256_start(&hash);
  char part[1000];
  memset(part, 'a', sizeof part);
  for (int i = 0; i < 1000; i++)
    sha256_add(&hash, part, sizeof part);
  uint8_t digest[SHA256_SIZE];
  sha256_finish(&hash, digest);
  static const uint8_t expected[SHA256_SIZE] = {0xcd, 0xc7, 0x6e, 0x5c, 0x99, 0x14, 0xfb, 0x92,
                                                0x81, 0xa1, 0xc7, 0xe2, 0x84, 0xd7, 0x3e, 0x67,
                                                0xf1, 0x80, 0x9a, 0x48, 0xa4, 0x97, 0x20, 0x0e,
                                                0x04, 0x6d, 0x39, 0xcc, 0xc7, 0x11, 0x2c, 0xd0};
  assert_memory_equal(digest, expected, sizeof digest);
}

static void test_sha256_does_not_depend_on_the_cuts(void **state) {
  (void)state;
  char data[300], whole[SHA256_HEX_SIZE];
  for (size_t i = 0; i < sizeof data; i++)
    data[i] = (char)(i * 7);
  for (size_t length = 0; length <= sizeof data; length += 13) {
    sha256_hex(data, length, whole);
    for (size_t cut = 0; cut <= length; cut += 5) {
      struct sha256 hash;
      uint8_t digest[SHA256_SIZE];
      char first[3];
      sha256_start(&hash);
      sha256_add(&hash, data, cut);
      sha256_add(&hash, data + cut, length - cut);
      sha256_finish(&hash, digest);
      snprintf(first, sizeof first, "%02x", digest[0]);
      assert_memory_equal(first, whole, 2);
    }
  }
}

static void test_arena_keeps_what_it_gave(void **state) {
  (void)state;
  _cleanup_arena_ struct arena arena = {0};
  char *first = arena_concat(&arena, "/home/u", "/.ssh");
  for (int i = 0; i < 5000; i++)
    assert_int_equal((uintptr_t)arena_alloc(&arena, 24) % 16, 0);
  char *large = arena_alloc(&arena, 1 << 20);
  large[(1 << 20) - 1] = 1;
  assert_string_equal(first, "/home/u/.ssh");
  assert_string_equal(arena_strndup(&arena, "abcdef", 3), "abc");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sha256_vectors),
    cmocka_unit_test(test_sha256_million),
    cmocka_unit_test(test_sha256_does_not_depend_on_the_cuts),
    cmocka_unit_test(test_arena_keeps_what_it_gave),
};

UNIT_MAIN(tests)
