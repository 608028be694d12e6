//! Stokehold: train.
