/* libFuzzer target for the ClientHello: any bytes have a server name, none, or are broken; what was
 * found in the first bytes does not change when more come, and a name found is a plain host name.
 * The same for the records behind it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

/* 0: the first bytes; 1: later ones; 2: and early data was announced. */
static enum tls_result read_part(const uint8_t *data, size_t length, int where,
                                 struct tls_hello *ret) {
  uint8_t *copy = malloc(length + 1); /* so that a byte too many is seen */
  if (length > 0)
    memcpy(copy + 1, data, length);
  enum tls_result result =
      where == 0 ? tls_first(copy + 1, length, ret) : tls_next(copy + 1, length, where == 2, ret);
  free(copy);
  return result;
}

static void check(const uint8_t *data, size_t length, int where) {
  struct tls_hello hello = {.length = 0}, earlier = hello;
  char plain[HOST_NAME_SIZE];
  enum tls_result result = read_part(data, length, where, &hello);
  if (result == TLS_NAME &&
      (!host_parse(hello.name, strlen(hello.name), plain) || strcmp(hello.name, plain) != 0))
    abort();
  if ((result == TLS_NAME || result == TLS_NO_NAME) && hello.length > length)
    abort();
  size_t step = 1 + length / 16;
  for (size_t part = length % step; part < length; part += step) {
    enum tls_result before = read_part(data, part, where, &earlier);
    if (before != TLS_MORE && before != result)
      abort();
    if (before == TLS_NAME && strcmp(earlier.name, hello.name) != 0)
      abort();
    if ((before == TLS_NAME || before == TLS_RECORD) && earlier.length != hello.length)
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  for (int where = 0; where < 3; where++)
    check(data, length, where);
  return 0;
}
