/* Private to src/backend: the parts of the vm back end. A virtual machine here is a native session
 * whose command is QEMU: what the guest can reach of the host is what that session shows, secrets
 * masked and protected names read-only, whatever happens inside the guest's kernel. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "backend/backend.h"
#include "core/text.h"

/* ---- the guest's first file system (vm-archive.c, pure) ---- */

/* Appends a file, or a folder, to an archive in cpio's "newc" format. */
void archive_add(struct text *archive, const char *name, unsigned mode, const void *data,
                 size_t size);
void archive_finish(struct text *archive);

/* ---- kernel and modules (vm-kernel.c) ---- */

/* The release of a kernel image (bzImage or ELF), such as "6.1.0-44-amd64". New string; NULL if it
 * is neither. Pure. */
char *kernel_release(const void *image, size_t size);

/* From the texts of modules.dep and modules.builtin: the files that the wanted modules need, each
 * after those that it needs itself. Error: which one there is not. Pure. */
int kernel_order_modules(const char *dependencies, const char *builtin, const char *const *wanted,
                         struct strv *ret_files, struct sb_error *error);

struct vm_kernel {
  char *image;   /* canonical */
  char *release; /* "6.1.0-44-amd64" */
  char *modules; /* folder: lib/modules/RELEASE beside the image, or /lib/modules/RELEASE */
};
void vm_kernel_clear(struct vm_kernel *kernel);
#define _cleanup_vm_kernel_ __attribute__((cleanup(vm_kernel_clear)))

/* The configured one (vm.kernel), or the newest readable one of /boot that has its modules. */
int vm_kernel_find(const struct policy *policy, struct vm_kernel *ret_kernel,
                   struct sb_error *error);

/* Adds the modules that a guest needs to its archive, and their names in order to the list. */
int vm_kernel_add_modules(const struct vm_kernel *kernel, bool network, struct text *archive,
                          struct strv *ret_names, struct sb_error *error);

/* ---- the network (vm-network.c) ---- */

/* Whether the guest has a network device: for the relay, or for published ports. Pure. */
bool vm_has_network(const struct plan *plan);

/* Published ports take two steps, since QEMU may not listen on the ports of its session below 1024:
 * what the session publishes, and what QEMU forwards from there. Pure. */
void vm_publish(const struct strv *published, struct strv *ret_publish, struct strv *ret_forwards);

/* What names the session's loopback names the gateway in the guest, and the resolver's address one
 * that is not the guest's own. New string. Pure. */
char *vm_translate(const char *text);

/* The text of the plan's resolver configuration, or NULL: without a network there is none. */
const char *vm_resolver_text(const struct plan *plan);

/* Whether this QEMU was built with `-netdev user`. */
bool vm_can_network(const char *qemu);

/* ---- the request (vm-request.c) ---- */

/* The whole archive; `program` is sandbox-vm, the guest's first process. */
int vm_make_archive(const struct backend_request *request, const struct vm_kernel *kernel,
                    const char *program, struct text *ret_archive, struct sb_error *error);

/* ---- machine (vm-machine.c) ---- */

/* Opens /dev/kvm, makes a machine and lets it run a few instructions. */
bool vm_kvm_works(void);

struct vm_machine {
  const char *qemu, *kernel, *initramfs, *console; /* as QEMU sees them */
  unsigned long long memory_mb;
  bool network;                /* QEMU's own, whose sockets are in its session */
  const struct strv *forwards; /* "20000-80": from its session's loopback to the guest's; or NULL */
};
/* QEMU and its options, but for accelerator, processors and ports, which sandbox-vm adds. Pure. */
void vm_machine_words(const struct vm_machine *machine, struct strv *ret_words);
