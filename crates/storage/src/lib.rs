//! Stokehold: storage.
