//! Stokehold: loader.
