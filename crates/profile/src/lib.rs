//! Stokehold: profile.
