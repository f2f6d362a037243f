/* Drawing names; see id.h. */
#include "core/id.h"

#include <sys/random.h>
#include <sys/types.h>

void id_draw(char *ret_id, size_t length) {
  static const char letters[] = ID_LETTERS;
  while (getrandom(ret_id, length, 0) != (ssize_t)length)
    ;
  for (size_t i = 0; i < length; i++)
    ret_id[i] = letters[(unsigned char)ret_id[i] % 32];
  ret_id[length] = '\0';
}
