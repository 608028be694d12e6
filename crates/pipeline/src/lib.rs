//! What happens to an image between its bytes and the batch.
//!
//! A [`Pipeline`] is data: a list of operations with torchvision's names, parameters and defaults. Before an
//! image is touched, [`Pipeline::draw`] turns the operations into concrete [`Step`]s; every random number is a
//! function of (seed, epoch, sample, operation), so the number of workers, a resume or another executor never
//! changes what a sample looks like. An [`Executor`] then performs the steps.
