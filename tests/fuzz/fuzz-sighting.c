/* The head of a packet that the kernel tells of. */
#include <stdlib.h>

#include "net/drivers/sightings.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  struct sighting sighting;
  if (sighting_parse(bytes, length, &sighting) &&
      (sighting.port == 0 || sighting.address.family != sighting.client.family))
    abort();
  return 0;
}
