#![no_std]
//! Stub.
