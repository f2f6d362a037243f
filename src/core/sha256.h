/* SHA-256 (FIPS 180-4), for the trust of project policies and the audit log's hash chain. Small and
 * our own because the command is linked statically and a crypto library would dominate it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_HEX_SIZE = 65 };

struct sha256 {
  uint32_t state[8];
  uint64_t length; /* bytes so far */
  uint8_t block[64];
};

void sha256_start(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t length);
void sha256_finish(struct sha256 *hash, uint8_t digest[SHA256_SIZE]);

/* The digest of some bytes as 64 lower-case hexadecimal digits and a NUL. */
void sha256_hex(const void *data, size_t length, char hex[SHA256_HEX_SIZE]);
