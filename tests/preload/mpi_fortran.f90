! SPDX-License-Identifier: Apache-2.0
! A program in Fortran, by both of its modules: the shim takes its calls as it takes C's.
program mpi_fortran
    implicit none
    integer :: old, new

    old = by_mpi()
    new = by_mpi_f08()
    if (old == 0 .and. new == 0) print '(a)', 'ok fortran'

contains

    ! Returns 0 on rank 0 when all was right, something else elsewhere.
    integer function by_mpi()
        use mpi
        integer :: rank, size, ierr, k
        double precision :: sums(3)
        real :: one(2)

        call MPI_Init(ierr)
        call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
        call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
        sums = [(dble(rank + k), k = 1, 3)]
        call MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
        one = real(rank)
        call MPI_Bcast(one, 2, MPI_REAL, size - 1, MPI_COMM_WORLD, ierr)
        k = rank
        call MPI_Allreduce(MPI_IN_PLACE, k, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
        by_mpi = rank
        if (abs(sums(2) - (dble(size * (size - 1)) / 2 + 2 * size)) > 1d-9) by_mpi = 1000
        if (k /= size - 1 .or. any(one /= real(size - 1))) by_mpi = 1001
    end function

    integer function by_mpi_f08()
        use mpi_f08
        integer :: rank, size, total
        integer, allocatable :: all(:)

        call MPI_Comm_rank(MPI_COMM_WORLD, rank)
        call MPI_Comm_size(MPI_COMM_WORLD, size)
        allocate (all(size))
        call MPI_Allreduce(rank + 1, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
        call MPI_Allgather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD)
        call MPI_Barrier(MPI_COMM_WORLD)
        by_mpi_f08 = rank
        if (total /= size * (size + 1) / 2 .or. all(size) /= size - 1) by_mpi_f08 = 1000
        call MPI_Finalize()
    end function
end program
