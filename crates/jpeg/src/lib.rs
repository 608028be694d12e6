//! Stokehold: jpeg.
