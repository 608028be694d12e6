//! The `stokehold` command line.
fn main() {}
