//! Ranks from outside: as threads, and as processes under MPI.

mod threads;
#[cfg(feature = "mpi")]
mod under_mpi;
