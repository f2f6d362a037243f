/* sandbox-vm: the first process of a guest, or the process beside QEMU. One program, so that the
 * two halves of a conversation are never of different versions. */
#include <unistd.h>

#include "backend/vm/guest.h"

int main(int count, char **words) {
  return getpid() == 1 && access("/request", R_OK) == 0 ? guest_main() : launch_main(count, words);
}
