/** Messages: everything that may leave the device, with no field for anything else. */
export {};
