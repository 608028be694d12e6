//! Preparation from outside: what it makes of every kind of image, and of every way to be disturbed.

mod baked;
mod content;
mod data;
mod disturbed;
mod packed;
mod pairs;
mod planted;
mod python;
mod shares;
mod whole;
