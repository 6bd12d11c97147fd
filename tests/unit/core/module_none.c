/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is no module. */
extern const int not_a_module;
const int not_a_module = 1;
