/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is checked, of which kind of subject, and when a check is believed: one row each. The
 * thresholds by which a sample is bad are the rules' (monitor/rules.h).
 */
#ifndef SL_MONITOR_CHECK_H
#define SL_MONITOR_CHECK_H

#include "monitor/condition.h"

enum sl_mon_kind {
    SL_MON_PORT,    /* "mlx5_0:1"; "eth0" */
    SL_MON_NIC,     /* its PCI device, "0000:0c:00.0" */
    SL_MON_GPU,     /* the same */
    SL_MON_PROCESS, /* "pid 4711" */
    SL_MON_HOST,    /* "host" */
    SL_MON_PEER,    /* another host, over an interface: "eth0 to 10.0.0.2" */
    SL_MON_KINDS
};

#define SL_MON_S UINT64_C(1000000000)
#define SL_MON_MIN (60 * SL_MON_S)
#define SL_MON_HOUR (60 * SL_MON_MIN)

/* Until the next boot, or until an operator says so. */
#define SL_MON_FOR_GOOD SL_MON_NEVER

/*
 * X(id, kind, name, class, severity, policy, what it means)
 *
 * class: what Kubernetes and Slurm see. severity: FATAL takes the node out once isolation is
 * asked for, DEGRADED is shown and counted. Links train for minutes after a boot; what only means
 * something of a port that carries is asked of one in use.
 */
#define SL_MON_CHECKS(X)                                                                           \
    X(PORT_DOWN, PORT, "link_down", "NICDown", FATAL,                                              \
      (.bad = 1, .of = 1, .in_use = true, .grace_ns = 5 * SL_MON_MIN, .hold_ns = SL_MON_MIN,       \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "the port stays down though it carried traffic within the last minute")                      \
    X(PORT_FLAP, PORT, "link_flap", "NICDegraded", DEGRADED,                                       \
      (.bad = 1, .of = 1, .in_use = true, .quiet = true, .grace_ns = 5 * SL_MON_MIN,               \
       .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),                                       \
      "the link went down and came back by itself")                                                \
    X(PORT_SPEED, PORT, "link_speed", "NICDegraded", DEGRADED,                                     \
      (.bad = 3, .of = 3, .grace_ns = 5 * SL_MON_MIN, .hold_ns = 10 * SL_MON_MIN,                  \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "the link runs slower, or on fewer lanes, than it did before in this boot")                  \
    X(PORT_SYMBOL, PORT, "symbol_errors", "NICDegraded", DEGRADED,                                 \
      (.bad = 3, .of = 6, .in_use = true, .grace_ns = 5 * SL_MON_MIN, .hold_ns = 10 * SL_MON_MIN,  \
       .clear_ns = 30 * SL_MON_MIN),                                                               \
      "bits arrive wrong: a dirty or damaged cable, or a transceiver that ages")                   \
    X(PORT_RECOVERY, PORT, "link_recovery", "NICDegraded", DEGRADED,                               \
      (.bad = 2, .of = 5, .in_use = true, .grace_ns = 5 * SL_MON_MIN, .hold_ns = 10 * SL_MON_MIN,  \
       .clear_ns = 30 * SL_MON_MIN),                                                               \
      "the link trained again without going down")                                                 \
    X(PORT_INTEGRITY, PORT, "link_integrity", "NICDegraded", FATAL,                                \
      (.bad = 1, .of = 1, .in_use = true, .quiet = true, .grace_ns = 5 * SL_MON_MIN,               \
       .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),                                       \
      "local link integrity or buffer overrun errors")                                             \
    X(PORT_RECEIVE, PORT, "receive_errors", "NICDegraded", DEGRADED,                               \
      (.bad = 3, .of = 6, .in_use = true, .hold_ns = 10 * SL_MON_MIN,                              \
       .clear_ns = 10 * SL_MON_MIN),                                                               \
      "packets arrive damaged")                                                                    \
    X(PORT_LOSS, PORT, "packet_loss", "FabricLinkSuspect", DEGRADED,                               \
      (.bad = 3, .of = 6, .in_use = true, .hold_ns = 5 * SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),  \
      "packets are lost on the way: timeouts, or gaps in their numbers")                           \
    X(PORT_NOT_READY, PORT, "receiver_not_ready", "PeerSlow", DEGRADED,                            \
      (.bad = 3, .of = 6, .in_use = true, .hold_ns = SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),      \
      "a receiver had no buffers until its sender gave up")                                        \
    X(PORT_DISCARD, PORT, "transmit_discards", "FabricCongested", DEGRADED,                        \
      (.bad = 3, .of = 6, .in_use = true, .hold_ns = 5 * SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),  \
      "the port throws away what it should send: what is beyond it is down or full")               \
    X(PORT_STALL, PORT, "transmit_stall", "NICDegraded", DEGRADED,                                 \
      (.bad = 3, .of = 3, .hold_ns = SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),                      \
      "what the port should send stands in its queue, and none of it leaves")                      \
    X(PORT_QP, PORT, "queue_pair_error", "FabricLinkSuspect", DEGRADED,                            \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),       \
      "queue pairs of a program went to the error state: their peer or the way to it is lost")     \
    X(PORT_EVENT, PORT, "port_event", "NICDegraded", DEGRADED,                                     \
      (.bad = 1, .of = 1, .in_use = true, .quiet = true, .hold_ns = SL_MON_MIN,                    \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "the port itself told that its link went down, or came back")                                \
    X(PORT_GID, PORT, "gid_gone", "NICDegraded", DEGRADED,                                         \
      (.bad = 1, .of = 1, .in_use = true, .quiet = true, .hold_ns = SL_MON_MIN,                    \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "a GID of the port is gone, and with it every connection that has it")                       \
    X(PORT_PATHS, PORT, "rank_paths", "FabricLinkSuspect", DEGRADED,                               \
      (.bad = 3, .of = 6, .in_use = true, .hold_ns = 5 * SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),  \
      "paths of ranks over this port fail, and those over other ports to the same peers do not")   \
    X(PORT_TIMEOUT, PORT, "transmit_timeout", "NICDegraded", DEGRADED,                             \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "a transmit queue stood still for seconds, until the kernel's watchdog reset it")            \
    X(NIC_QP, NIC, "qp_fatal", "NICDegraded", DEGRADED,                                            \
      (.bad = 3, .of = 3, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "queue pairs failed by themselves, by no peer's and no program's fault that it could name")  \
    X(NIC_GONE, NIC, "nic_gone", "NICDown", FATAL,                                                 \
      (.bad = 2, .of = 2, .grace_ns = 5 * SL_MON_MIN, .hold_ns = SL_MON_MIN,                       \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "the device is gone, say two sources that do not know of each other")                        \
    X(NIC_DRIVER, NIC, "nic_driver", "NICDown", FATAL,                                             \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "its driver or firmware reports trouble in the kernel's log")                                \
    X(NIC_PCIE, NIC, "nic_pcie", "NICDegraded", DEGRADED,                                          \
      (.bad = 3, .of = 3, .grace_ns = SL_MON_MIN, .hold_ns = 10 * SL_MON_MIN,                      \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "its PCIe link is narrower or slower than the device and the slot can")                      \
    X(NIC_BUS, NIC, "nic_bus_errors", "NICDegraded", DEGRADED,                                     \
      (.bad = 3, .of = 8, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "errors of its PCIe link (AER) in the kernel's log")                                         \
    X(NIC_BUS_FATAL, NIC, "nic_bus_fatal", "NICDown", FATAL,                                       \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "a fatal error of its PCIe link (AER) in the kernel's log")                                  \
    X(NIC_BUS_CORRECTED, NIC, "nic_bus_corrected", "NICDegraded", DEGRADED,                        \
      (.bad = 24, .of = 24, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),   \
      "many corrected errors of its PCIe link (AER) in the kernel's log")                          \
    X(GPU_FATAL, GPU, "gpu_fatal", "GPUUnhealthy", FATAL,                                          \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = SL_MON_FOR_GOOD, .clear_ns = SL_MON_MIN),      \
      "an XID after which the GPU needs a reset or a replacement")                                 \
    X(GPU_ERROR, GPU, "gpu_error", "GPUSuspect", DEGRADED,                                         \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "an XID that a program or the hardware may have caused")                                     \
    X(GPU_PCIE, GPU, "gpu_pcie", "GPUDegraded", DEGRADED,                                          \
      (.bad = 3, .of = 3, .grace_ns = SL_MON_MIN, .hold_ns = 10 * SL_MON_MIN,                      \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "its PCIe link is narrower, or under load slower, than the device and the slot can")         \
    X(GPU_SLOWED, GPU, "gpu_slowed", "GPUDegraded", DEGRADED,                                      \
      (.bad = 3, .of = 5, .grace_ns = SL_MON_MIN, .hold_ns = SL_MON_MIN,                           \
       .clear_ns = 5 * SL_MON_MIN),                                                                \
      "its hardware slows it down: heat, power, or the power supply's brake")                      \
    X(GPU_MEMORY, GPU, "gpu_memory", "GPUUnhealthy", FATAL,                                        \
      (.bad = 1, .of = 1, .hold_ns = SL_MON_FOR_GOOD, .clear_ns = SL_MON_MIN),                     \
      "memory that was wrong could not be replaced by spare rows")                                 \
    X(GPU_ECC, GPU, "gpu_ecc", "GPUSuspect", DEGRADED,                                             \
      (.bad = 1, .of = 1, .hold_ns = SL_MON_HOUR, .clear_ns = SL_MON_HOUR),                        \
      "uncorrectable errors of its memory were counted")                                           \
    X(GPU_NVLINK, GPU, "gpu_nvlink", "GPUDegraded", DEGRADED,                                      \
      (.bad = 2, .of = 3, .grace_ns = 5 * SL_MON_MIN, .hold_ns = 10 * SL_MON_MIN,                  \
       .clear_ns = 10 * SL_MON_MIN),                                                               \
      "an NVLink that was there is down, or repeats and recovers")                                 \
    X(GPU_LOST, GPU, "gpu_lost", "GPUUnhealthy", FATAL,                                            \
      (.bad = 2, .of = 2, .hold_ns = SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),                      \
      "its driver says that the GPU is lost, or has fallen off the bus")                           \
    X(PEER_LOSS, PEER, "path_loss", "FabricLinkSuspect", DEGRADED,                                 \
      (.bad = 3, .of = 6, .hold_ns = 30 * SL_MON_S, .clear_ns = 5 * SL_MON_MIN),                   \
      "what is sent to that host gets lost here and there, and is sent again")                     \
    X(PEER_BLACKOUT, PEER, "path_blackout", "FabricLinkSuspect", DEGRADED,                         \
      (.bad = 2, .of = 5, .hold_ns = 30 * SL_MON_S, .clear_ns = 5 * SL_MON_MIN),                   \
      "nothing that is sent to that host arrives, at times or at all")                             \
    X(PEER_SLOW, PEER, "peer_slow", "PeerSlow", DEGRADED,                                          \
      (.bad = 3, .of = 5, .hold_ns = 10 * SL_MON_S, .clear_ns = SL_MON_MIN),                       \
      "that host does not take what is sent to it: its receivers are stopped or slow")             \
    X(PEER_RATE, PEER, "path_slow", "FabricCongested", DEGRADED,                                   \
      (.bad = 5, .of = 6, .hold_ns = 30 * SL_MON_S, .clear_ns = 5 * SL_MON_MIN),                   \
      "the way to that host is much slower than it was, and loses nothing")                        \
    X(PROCESS_STOPPED, PROCESS, "stopped", "RankSlow", DEGRADED,                                   \
      (.bad = 1, .of = 1, .hold_ns = 0, .clear_ns = 5 * SL_MON_S),                                 \
      "the process is stopped, by a signal or a debugger")                                         \
    X(PROCESS_THROTTLED, PROCESS, "throttled", "RankSlow", DEGRADED,                               \
      (.bad = 3, .of = 5, .hold_ns = 10 * SL_MON_S, .clear_ns = 30 * SL_MON_S),                    \
      "its cgroup's CPU quota stops it in every period")                                           \
    X(PROCESS_STARVED, PROCESS, "starved", "RankSlow", DEGRADED,                                   \
      (.bad = 3, .of = 5, .hold_ns = 10 * SL_MON_S, .clear_ns = 30 * SL_MON_S),                    \
      "it is ready to run, and others have its processor")                                         \
    X(PROCESS_BLOCKED, PROCESS, "blocked", "RankSlow", DEGRADED,                                   \
      (.bad = 5, .of = 5, .hold_ns = 10 * SL_MON_S, .clear_ns = 30 * SL_MON_S),                    \
      "it waits in the kernel and cannot be interrupted (D): storage, a driver")                   \
    X(PROCESS_MEMORY, PROCESS, "memory_pressure", "RankSlow", DEGRADED,                            \
      (.bad = 3, .of = 5, .hold_ns = 10 * SL_MON_S, .clear_ns = 30 * SL_MON_S),                    \
      "it waits for memory: its cgroup or the host is full")                                       \
    X(PROCESS_COMM, PROCESS, "communicator", "RankLost", DEGRADED,                                 \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = SL_MON_MIN, .clear_ns = SL_MON_MIN),           \
      "a communicator of the rank is broken: a peer was lost, or they disagree")                   \
    X(PROCESS_DIED, PROCESS, "died", "RankLost", DEGRADED,                                         \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = SL_MON_MIN, .clear_ns = SL_MON_MIN),           \
      "a rank ended without a goodbye")                                                            \
    X(HOST_DAMAGE, HOST, "damaged_segments", "FabricLinkSuspect", DEGRADED,                        \
      (.bad = 3, .of = 6, .hold_ns = 5 * SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),                  \
      "TCP segments arrive with a wrong checksum: somebody on their way changes them")             \
    X(HOST_GPUS, HOST, "gpu_driver", "GPUUnhealthy", DEGRADED,                                     \
      (.bad = 2, .of = 2, .hold_ns = SL_MON_MIN, .clear_ns = 5 * SL_MON_MIN),                      \
      "the driver of the GPUs does not answer, or ends whom it should answer")                     \
    X(HOST_MACHINE, HOST, "machine_check", "HostUnhealthy", FATAL,                                 \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = SL_MON_HOUR, .clear_ns = SL_MON_HOUR),         \
      "an uncorrected machine check: memory or a processor is broken")                             \
    X(HOST_HUNG, HOST, "hung_task", "HostDegraded", DEGRADED,                                      \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "the kernel found a task that has hung for minutes")                                         \
    X(HOST_MEMORY, HOST, "out_of_memory", "HostDegraded", DEGRADED,                                \
      (.bad = 1, .of = 1, .quiet = true, .hold_ns = 10 * SL_MON_MIN, .clear_ns = SL_MON_HOUR),     \
      "the kernel killed a process for want of memory")

enum sl_mon_check {
#define X(id, ...) SL_MON_CHECK_##id,
    SL_MON_CHECKS(X)
#undef X
        SL_MON_CHECK_COUNT
};

enum sl_mon_severity { SL_MON_DEGRADED, SL_MON_FATAL };

struct sl_mon_check_row {
    const char *name, *condition, *help;
    enum sl_mon_kind kind;
    enum sl_mon_severity severity;
    struct sl_mon_policy policy;
};

extern const struct sl_mon_check_row sl_mon_checks[SL_MON_CHECK_COUNT];

const char *sl_mon_kind_name(enum sl_mon_kind kind); /* "port" */

#endif
