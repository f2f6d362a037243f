/* SHA-256; see sha256.h. Pure; tested with the vectors of FIPS 180-4. */
#include "core/sha256.h"

#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t value, int bits) {
  return value >> bits | value << (32 - bits);
}

static uint32_t load_big_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void expand_block(const uint8_t *block, uint32_t schedule[64]) {
  for (int i = 0; i < 16; i++)
    schedule[i] = load_big_endian(block + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t a = schedule[i - 15], b = schedule[i - 2];
    schedule[i] = schedule[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + schedule[i - 7] +
                  (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
  }
}

static void compress(uint32_t state[8], const uint8_t *block) {
  uint32_t schedule[64], v[8];
  expand_block(block, schedule);
  memcpy(v, state, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t sum1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
    uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
    uint32_t first = v[7] + sum1 + choice + round_constants[i] + schedule[i];
    uint32_t sum0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
    uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    memmove(v + 1, v, 7 * sizeof v[0]);
    v[4] += first;
    v[0] = first + sum0 + majority;
  }
  for (int i = 0; i < 8; i++)
    state[i] += v[i];
}

void sha256_start(struct sha256 *hash) {
  *hash = (struct sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                    0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(struct sha256 *hash, const void *data, size_t length) {
  const uint8_t *at = data;
  while (length > 0) {
    size_t used = hash->length % 64, part = 64 - used;
    if (part > length)
      part = length;
    memcpy(hash->block + used, at, part);
    hash->length += part;
    at += part;
    length -= part;
    if (hash->length % 64 == 0)
      compress(hash->state, hash->block);
  }
}

void sha256_finish(struct sha256 *hash, uint8_t digest[SHA256_SIZE]) {
  static const uint8_t padding[64] = {0x80};
  uint64_t bits = hash->length * 8;
  uint8_t suffix[8];
  for (int i = 0; i < 8; i++)
    suffix[i] = (uint8_t)(bits >> (56 - 8 * i));
  size_t used = hash->length % 64;
  sha256_add(hash, padding, used < 56 ? 56 - used : 120 - used);
  sha256_add(hash, suffix, sizeof suffix);
  for (int i = 0; i < SHA256_SIZE; i++)
    digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hex(const void *data, size_t length, char hex[SHA256_HEX_SIZE]) {
  struct sha256 hash;
  uint8_t digest[SHA256_SIZE];
  sha256_start(&hash);
  sha256_add(&hash, data, length);
  sha256_finish(&hash, digest);
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < SHA256_SIZE; i++) {
    hex[2 * i] = digits[digest[i] >> 4];
    hex[2 * i + 1] = digits[digest[i] & 15];
  }
  hex[2 * SHA256_SIZE] = '\0';
}
