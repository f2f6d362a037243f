"""Boots one kernel on the host's own root, runs jobs in it and brings the results back.

Whatever happens, no QEMU and no temporary file may outlive the caller.
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree

import kernels
from architectures import Architecture

# Nothing that costs an emulated processor time and says nothing about the sandbox.
COMMAND_LINE = ("quiet loglevel=4 panic=-1 mitigations=off nokaslr cryptomgr.notests "
                "random.trust_cpu=on")

# Grows only as the guest writes to it; gives the io controller a disk and /home a real file system.
DISK_SIZE = 2 << 30


@dataclasses.dataclass
class Job:
    name: str
    user: str
    command: str
    seconds: int = 300


@dataclasses.dataclass
class Result:
    name: str
    user: str
    status: int
    seconds: float
    left: int
    log: pathlib.Path
    processor: float = 0.0  # seconds of this machine's processors: says more than time if it is busy

    def passed(self):
        return self.status == 0 and self.left == 0

    def remarks(self):
        """What the exit code alone does not say."""
        said = []
        if self.status == 124:
            said.append("timed out")
        elif self.status:
            said.append(f"exit code {self.status}")
        if self.left:
            said.append(f"left {self.left} processes or cgroups behind")
        report = self.log.with_suffix(".xml")
        if report.exists():
            suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
            said += [f"{suite.get(word)} {word}" for word in ("tests", "failures", "errors",
                                                             "skipped") if suite.get(word) != "0"]
        return ", ".join(said)


@dataclasses.dataclass
class Machine:
    architecture: Architecture
    root: pathlib.Path
    repository: pathlib.Path
    build: pathlib.Path
    cache: pathlib.Path
    results: pathlib.Path
    accelerator: str = "tcg"
    memory: int = 1536
    processors: int = 1
    seconds: int = 540
    sysctls: tuple = ()


class Guest:
    """One boot; stop() may be called from any thread at any time."""

    def __init__(self, kernel, machine, show):
        self.kernel = kernel
        self.machine = machine
        self.show = show
        self.process = None
        self.stopped = None
        self.used = []  # processor time when each job began, and at the end

    def run(self, jobs):
        """Returns the results of the jobs, why the guest did not finish if so, and the seconds: by
        the clock and of the processors."""
        started = time.monotonic()
        results = self.run_jobs(jobs)
        return (results, self.problem(), time.monotonic() - started,
                self.used[-1] if self.used else 0.0)

    def run_jobs(self, jobs):
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.machine.cache) as name:
            folder = pathlib.Path(name)
            control = folder / "control"
            self.write_control(control, jobs)
            self.make_disk(folder / "disk")
            try:
                self.boot(folder)
                return self.read_results(control)
            finally:
                kept = self.machine.results / self.kernel.version
                shutil.copytree(control, kept, dirs_exist_ok=True)
                shutil.copy(folder / "console.log", kept / "console.log")

    def write_control(self, control, jobs):
        control.mkdir()
        machine = self.machine
        (control / "keep").write_text("".join(f"{path}\n" for path in self.kept()))
        if machine.architecture.own_root:
            (control / "shared").touch()
        (control / "sysctls").write_text("".join(f"{line}\n" for line in machine.sysctls))
        (control / "settings").write_text(
            f"{self.kernel.version}\n{machine.repository}\n{machine.build}\n")
        (control / "jobs").write_text("".join(
            f"{job.name}\0{job.user}\0{job.seconds}\0{job.command}\0" for job in jobs))
        (control / "results").touch()

    def kept(self):
        """What must be at its usual path in the guest."""
        return self.machine.repository, self.machine.build

    def make_disk(self, path):
        with open(path, "wb") as file:
            file.truncate(DISK_SIZE)
        subprocess.run(["/sbin/mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", path], check=True)

    def boot(self, folder):
        (folder / "console.log").touch()
        # An input that never says anything: at its end QEMU would close the output port as well.
        self.process = subprocess.Popen(self.command(folder), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        start_new_session=True)
        if self.stopped:
            self.process.kill()
        limit = threading.Timer(self.machine.seconds, self.stop,
                                [f"no end after {self.machine.seconds} s"])
        limit.start()
        try:
            for line in self.process.stdout:
                line = line.decode(errors="replace").rstrip("\r\n")
                if line == "==" or line.startswith("== "):  # the next job, or none any more
                    self.used.append(processor_seconds(self.process.pid))
                if line != "==":
                    self.show(line)
            self.process.wait()
        finally:
            limit.cancel()
            self.process.kill()
            self.process.wait()

    def stop(self, reason):
        self.stopped = reason
        if self.process:
            self.process.kill()

    def command(self, folder):
        machine = self.machine
        # The death signal covers the one end that no handler sees: a killed caller.
        words = ["setpriv", "--pdeathsig", "KILL", *machine.architecture.qemu,
                 "-accel", machine.accelerator, "-m", str(machine.memory),
                 "-smp", str(machine.processors), "-nodefaults", "-no-user-config",
                 "-display", "none", "-no-reboot", "-kernel", self.kernel.image,
                 "-initrd", kernels.initramfs(self.kernel, machine.root),
                 "-append", f"{machine.architecture.console} {COMMAND_LINE}",
                 "-serial", f"file:{escaped(folder)}/console.log",
                 "-chardev", "stdio,id=output,signal=off", "-device", "virtio-serial-pci",
                 "-device", "virtserialport,chardev=output",
                 "-drive", f"file={escaped(folder)}/disk,format=raw,if=virtio,cache=unsafe"]
        shares = [("control", folder / "control", ""),
                  ("root", machine.root, ",readonly=on,multidevs=remap"),
                  ("modules", self.kernel.modules, ",readonly=on")]
        if machine.architecture.own_root:
            shares += [(f"keep{number}", path, ",readonly=on")
                       for number, path in enumerate(self.kept())]
        for tag, path, options in shares:
            words += ["-fsdev", f"local,id={tag},path={escaped(path)},security_model=none{options}",
                      "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        return words

    def read_results(self, control):
        results = []
        for line in (control / "results").read_text().splitlines():
            name, user, status, milliseconds, left, log = line.split("\t")
            log = self.machine.results / self.kernel.version / f"{log}.log"
            used = self.used[len(results):len(results) + 2]
            results.append(Result(name, user, int(status), int(milliseconds) / 1000, int(left), log,
                                  used[-1] - used[0] if used else 0.0))
        return results

    def problem(self):
        """Why the guest did not get to its end, or nothing."""
        kept = self.machine.results / self.kernel.version
        if (kept / "finished").exists():
            return None
        if (kept / "failed").exists():
            return (kept / "failed").read_text().strip()
        last = (kept / "console.log").read_text(errors="replace").strip().splitlines()[-5:]
        return "\n".join([self.stopped or "the guest ended early; its last words:", *last])


def processor_seconds(pid):
    """What a process has used so far, of user and system time; 0 if it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def escaped(path):
    """QEMU's options are split at single commas."""
    return str(path).replace(",", ",,")
