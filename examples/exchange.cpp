// SPDX-License-Identifier: Apache-2.0
//
// C++: owners that give communicator and requests back, and a ring of sends and receives in a
// group.
//
//   c++ exchange.cpp $(pkg-config --cflags --libs sluice) -o exchange
//   mpirun -np 4 ./exchange
#include <sluice/sluice.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace
{

struct destroy {
    void operator()(sluice_comm *comm) const
    {
        sluice_comm_destroy(comm);
    }
    void operator()(sluice_req *req) const
    {
        sluice_req_free(req);
    }
};
using communicator = std::unique_ptr<sluice_comm, destroy>;
using request = std::unique_ptr<sluice_req, destroy>;

void check(int err)
{
    if (err < 0)
        throw std::runtime_error(sluice_last_error());
}

communicator from_environment()
{
    sluice_comm *comm = nullptr;

    check(sluice_comm_from_env(&comm));
    return communicator(comm);
}

// Everybody sends to the next rank and receives from the one before. A group starts both together.
std::vector<double> shift(sluice_comm *comm, const std::vector<double> &mine)
{
    const int rank = sluice_comm_rank(comm), size = sluice_comm_size(comm);
    std::vector<double> theirs(mine.size());
    sluice_req *sent = nullptr, *received = nullptr;

    check(sluice_group_start());
    check(sluice_send(comm, mine.data(), mine.size(), SLUICE_F64, (rank + 1) % size, &sent));
    check(sluice_recv(comm, theirs.data(), theirs.size(), SLUICE_F64, (rank + size - 1) % size,
                      &received));
    check(sluice_group_end());
    request own_sent(sent), own_received(received);
    check(sluice_wait(sent));
    check(sluice_wait(received));
    return theirs;
}

} // namespace

int main()
{
    try {
        const communicator comm = from_environment();
        const int rank = sluice_comm_rank(comm.get()), size = sluice_comm_size(comm.get());

        if (size < 2) {
            std::printf("one rank has nobody to exchange with\n");
            return 0;
        }
        const std::vector<double> theirs = shift(comm.get(), std::vector<double>(1000, rank));

        std::printf("rank %d received the vector of rank %.0f\n", rank, theirs[0]);
        return theirs[999] == (rank + size - 1) % size ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
