/* The first process of the guest: from nothing to the command. */
#include "backend/vm/guest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

void guest_fail(const struct guest *guest, int errnum, const char *what, const char *name) {
  char text[512];
  int length = snprintf(text, sizeof text, "in the guest: %s '%s'%s%s", what, name,
                        errnum ? ": " : "", errnum ? strerror(errnum) : "");
  size_t size = length < (int)sizeof text ? (size_t)length : sizeof text - 1;
  if (guest->control >= 0) {
    guest_send(guest, (struct vm_message){.kind = VM_FAILED, .value = (uint32_t)size});
    guest_write_all(guest->control, text, size);
    sleep(2); /* the host switches us off */
  } else {
    /* The console; the host shows its last lines. */
    dprintf(STDOUT_FILENO, "sandbox-vm: %s\n", text);
  }
  reboot(RB_AUTOBOOT); /* QEMU ends: it runs with -no-reboot */
  for (;;)
    pause();
}

static void hear_start(struct guest *guest) {
  struct vm_message start;
  guest_read_exactly(guest, guest->control, &start, sizeof start);
  if (start.kind != VM_START)
    guest_fail(guest, EPROTO, "hearing", "the host");
  guest->terminal = start.value;
  guest->rows = (unsigned short)start.first;
  guest->columns = (unsigned short)start.second;
}

int guest_main(void) {
  static struct guest guest = {.control = -1, .input = -1, .output = -1, .error = -1, .limits = -1};
  struct guest_command command;
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, NULL);
  signal(SIGPIPE, SIG_IGN);
  guest_mount_early(&guest);
  guest_read_request(&guest);
  guest_load_modules(&guest);
  guest_open_ports(&guest);
  hear_start(&guest);
  guest_raise_network(&guest);
  if (guest.hostname && sethostname(guest.hostname, strlen(guest.hostname)) < 0)
    guest_fail(&guest, errno, "taking the name", guest.hostname);
  guest_limit_processes(&guest);
  guest_enter_root(&guest);
  guest_start(&guest, &command);
  guest_relay(&guest, &command);
}
