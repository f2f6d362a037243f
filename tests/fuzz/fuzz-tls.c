/* libFuzzer target for the ClientHello: any bytes have a server name, none, or are broken; what was
 * found in the first bytes does not change when more come, and a name found is a plain host name.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static enum tls_result read_part(const uint8_t *data, size_t length, char ret[HOST_NAME_SIZE]) {
  uint8_t *copy = malloc(length + 1); /* so that a byte too many is seen */
  if (length > 0)
    memcpy(copy + 1, data, length);
  enum tls_result result = tls_server_name(copy + 1, length, ret);
  free(copy);
  return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  char name[HOST_NAME_SIZE] = "", earlier[HOST_NAME_SIZE], plain[HOST_NAME_SIZE];
  enum tls_result result = read_part(data, length, name);
  if (result == TLS_NAME && (!host_parse(name, strlen(name), plain) || strcmp(name, plain) != 0))
    abort();
  size_t step = 1 + length / 16;
  for (size_t part = length % step; part < length; part += step) {
    enum tls_result before = read_part(data, part, earlier);
    if (before != TLS_MORE && before != result)
      abort();
    if (before == TLS_NAME && strcmp(earlier, name) != 0)
      abort();
  }
  return 0;
}
