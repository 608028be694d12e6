//! The command line from outside: what it makes, says and exits with.

mod compare;
mod dataset;
