/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slow communication (rule 6.3 of the design): which sender, receiver, link, leaf, rail, plane or
 * switch makes messages slow, by the time that messages spent under way (matrix.h) beyond what
 * messages of their size take (expect.h).
 *
 * A part is accused if all its cells are slow (ambiguity.h) and their median is so far above the
 * others' that health would show it less often than the budget allows. In health,
 *
 *     z = (log(ratio) - log(1 + margin)) / spread
 *
 * is taken for Gaussian, but for one in M^2 times, when it has the heavy tail of a single message
 * (Student, 6 degrees of freedom). M: messages, at most 1,000, as messages of one pause are late
 * together; of two looks the product of theirs, as noise that passes has to come twice. Means of M
 * independent ones with six moments leave the Gaussian no more often (D. H. Fuk, S. V. Nagaev,
 * "Probability inequalities for sums of independent random variables", Theory Probab. Appl. 16,
 * 1971). The spread is that between parts of the same kind, 1 % at least, wider where there are
 * few. The evidence is a bet against it, a number W with E[exp(W)] <= 1 in health: so W >= h comes
 * with a chance of exp(-h) at most. With
 *
 *     h = log(parts of the kind * kinds * 86400 s * node_days / (nodes * window_s))
 *
 * there is one false alarm in node_days days of a node, over all parts. Fewer than three messages
 * never make an alarm.
 */
#ifndef SL_MONITOR_DIAGNOSIS_COMM_H
#define SL_MONITOR_DIAGNOSIS_COMM_H

#include "monitor/diagnosis/job.h"
#include "monitor/diagnosis/verdict.h"

struct sl_comm_options {
    double node_days; /* of one false alarm */
    double window_s;  /* what the edges were measured in, and after which one is judged again */
    double looks;     /* that say the same and share no message: this one, and so many before it */
    double margin;    /* by how much healthy parts may differ for ever */
    double faults;    /* a node's and day's, as far as is known before: for the probability */
};

#define SL_COMM_OPTIONS                                                                            \
    {                                                                                              \
        .node_days = 10000, .window_s = 600, .looks = 1, .margin = 0.10, .faults = 0.001           \
    }

/* Adds a verdict for each fault: SLOW_SENDER, SLOW_RECEIVER, SLOW_LINK, SLOW_GROUP, with its
 * ambiguity set in others and probes that would narrow it in the evidence. Of a link that verdicts
 * has as COMM_STUCK nothing is said. The job must be sealed. 0 or -ENOMEM. */
int sl_comm_find(const struct sl_job *job, const struct sl_comm_options *options,
                 struct sl_verdicts *verdicts);

#endif
