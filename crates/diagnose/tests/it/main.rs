//! What the rules promise, by theme.

mod rules;
