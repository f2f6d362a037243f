/* What the two halves of sandbox-vm say to each other. The program runs twice: beside QEMU, where
 * it passes on input, output and signals, and as the first process of the guest. What is to be done
 * is in the file /request of the guest's first file system; these messages travel on the port
 * "control", the bytes of the command on the ports "stdin", "stdout" and "stderr". */
#pragma once

#include <stdint.h>

enum vm_message_kind {
  VM_START = 1, /* to the guest: value is 1 for a terminal; first its rows, second its columns */
  VM_SIGNAL,    /* to the guest: value for the command's process group */
  VM_SIZE,      /* to the guest: the terminal's size has changed, as in START */
  VM_CLOSED,    /* to the guest: nobody reads stdout (1) or stderr (2) any more */
  VM_RUNNING,   /* from the guest: the command has been started */
  VM_EXIT,      /* from the guest: value as a shell says it; first and second are the numbers of
                   bytes that were written to stdout and stderr */
  VM_FAILED,    /* from the guest: value is the length of the sentence that follows */
};

struct vm_message {
  uint32_t kind, value;
  uint64_t first, second;
};

#define VM_PORT_CONTROL "sandbox.control"
#define VM_PORT_STDIN   "sandbox.stdin"
#define VM_PORT_STDOUT  "sandbox.stdout"
#define VM_PORT_STDERR  "sandbox.stderr"

/* The request: records of one letter and a string that ends with a NUL byte. */
enum vm_record {
  VM_RECORD_MODULE = 'm',     /* a file of the first file system, to be loaded in this order */
  VM_RECORD_FOLDER = 'b',     /* a folder that the host lets us write, or that needs a place */
  VM_RECORD_FILE = 'f',       /* the same for a file */
  VM_RECORD_ARGUMENT = 'a',   /* a word of the command */
  VM_RECORD_EXECUTABLE = 'x', /* where it may be found */
  VM_RECORD_VARIABLE = 'e',   /* NAME=value */
  VM_RECORD_CWD = 'd',
  VM_RECORD_HOSTNAME = 'h',
  VM_RECORD_USER = 'u',
  VM_RECORD_GROUP = 'g',
  VM_RECORD_PROCESSES = 'p', /* limits; absent: none */
  VM_RECORD_OPEN_FILES = 'n',
  VM_RECORD_FILE_SIZE = 'z',
  VM_RECORD_TMPFS_SIZE = 't',
  VM_RECORD_NETWORK = 'w',  /* there is a network device; the value says nothing */
  VM_RECORD_RESOLVER = 'r', /* where the resolver's configuration is, and… */
  VM_RECORD_NAMES = 's',    /* …what it is to say */
};

/* The guest's network is QEMU's own (`-netdev user`), whose sockets are in the session's network,
 * where every connection and every question comes to the relay. */
#define VM_NET_DEVICE   "eth0"
#define VM_NET_ADDRESS  "10.0.2.15"
#define VM_NET_GATEWAY  "10.0.2.2" /* the loopback of QEMU's session: the relay's proxies */
#define VM_NET_ADDRESS6 "fec0::15"
#define VM_NET_GATEWAY6 "fec0::2"
#define VM_NET_RESOLVER "192.0.2.53" /* nobody's: whoever is asked, the relay answers */

#define VM_TAG_ROOT  "sandbox-root"  /* the view, for reading: cached */
#define VM_TAG_WRITE "sandbox-write" /* the same view, for what may be written */
