/* libFuzzer target for SOCKS5: what was decided after some bytes stays decided when more come, and
 * no message makes the relay wait for more than it reads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/socks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check_request(const struct socks_request *request, size_t length) {
  if (request->used > length || request->host_length == 0 ||
      request->host_length >= sizeof request->host || request->port == 0)
    abort();
}

static void check(const uint8_t *data, size_t length, bool greeted) {
  enum socks_result before = SOCKS_MORE;
  struct socks_request request = {0};
  for (size_t part = 0; part <= length; part++) {
    enum socks_result result = socks_parse(data, part, greeted, &request);
    if (before != SOCKS_MORE && result != before)
      abort();
    if (result == SOCKS_MORE && part >= SOCKS_LIMIT)
      abort();
    if (result == SOCKS_GREETED && request.used > part)
      abort();
    if (result == SOCKS_REQUEST)
      check_request(&request, part);
    before = result;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  check(data, length, false);
  check(data, length, true);
  return 0;
}
